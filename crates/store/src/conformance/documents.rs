//! Documents by namespace and name.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::store::Documents;

async fn put(documents: &dyn Documents, namespace: &str, name: &str, json: &'static str) {
    documents
        .put(namespace, name, Bytes::from_static(json.as_bytes()))
        .await
        .unwrap();
}

async fn names(documents: &dyn Documents, namespace: &str, prefix: &str) -> Vec<String> {
    documents
        .all(namespace, prefix)
        .await
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

/// `put` replaces a document.
pub async fn put_replaces_a_document(documents: Arc<dyn Documents>) {
    assert_eq!(documents.fetch("namespace", "a").await.unwrap(), None);
    put(&*documents, "namespace", "a", "1").await;
    put(&*documents, "namespace", "a", "{\"n\": 2}").await;

    assert_eq!(
        documents.fetch("namespace", "a").await.unwrap().as_deref(),
        Some(&b"{\"n\": 2}"[..])
    );
    assert_eq!(documents.all("namespace", "").await.unwrap().len(), 1);
}

/// `put_new` does not replace a document.
pub async fn put_new_keeps_the_first_document(documents: Arc<dyn Documents>) {
    let put_new = async |json: &'static [u8]| {
        documents
            .put_new("namespace", "a", Bytes::from_static(json))
            .await
            .unwrap()
    };
    assert_eq!(put_new(b"1").await, "1");
    assert_eq!(put_new(b"2").await, "1");
    assert_eq!(
        documents.fetch("namespace", "a").await.unwrap().unwrap(),
        "1"
    );
}

/// A swap fails if the document has changed since it was read.
pub async fn a_swap_needs_the_current_document(documents: Arc<dyn Documents>) {
    let swap = async |was: &'static [u8], json: &'static [u8]| {
        documents
            .swap(
                "namespace",
                "a",
                &Bytes::from_static(was),
                Bytes::from_static(json),
            )
            .await
            .unwrap()
    };
    assert!(!swap(b"1", b"2").await, "there is none");
    put(&*documents, "namespace", "a", "1").await;
    assert!(swap(b"1", b"2").await);
    assert!(!swap(b"1", b"3").await);
    assert_eq!(
        documents.fetch("namespace", "a").await.unwrap().unwrap(),
        "2"
    );
}

/// Its name can be used again.
pub async fn a_removed_document_is_gone(documents: Arc<dyn Documents>) {
    put(&*documents, "namespace", "a", "1").await;
    assert!(documents.remove("namespace", "a").await.unwrap());
    assert!(!documents.remove("namespace", "a").await.unwrap());

    assert_eq!(documents.fetch("namespace", "a").await.unwrap(), None);
    assert_eq!(
        documents
            .put_new("namespace", "a", Bytes::from_static(b"2"))
            .await
            .unwrap(),
        "2"
    );
}

/// A prefix has no wildcards.
pub async fn documents_are_found_by_prefix(documents: Arc<dyn Documents>) {
    for name in ["b", "a/2", "a/1", "a%", "A/1", "a", "ä", "a/\u{10FFFF}z"] {
        put(&*documents, "namespace", name, "0").await;
    }
    assert_eq!(
        names(&*documents, "namespace", "a/").await,
        ["a/1", "a/2", "a/\u{10FFFF}z"]
    );
    assert_eq!(names(&*documents, "namespace", "a%").await, ["a%"]);
    assert_eq!(names(&*documents, "namespace", "_").await, [""; 0]);
    assert_eq!(
        names(&*documents, "namespace", "").await,
        ["A/1", "a", "a%", "a/1", "a/2", "a/\u{10FFFF}z", "b", "ä"]
    );
}

/// The same name in two namespaces is two documents.
pub async fn namespaces_are_separate(documents: Arc<dyn Documents>) {
    put(&*documents, "one", "a", "1").await;
    put(&*documents, "two", "a", "2").await;
    documents.remove("one", "a").await.unwrap();

    assert_eq!(names(&*documents, "one", "").await, [""; 0]);
    assert_eq!(documents.fetch("two", "a").await.unwrap().unwrap(), "2");
}
