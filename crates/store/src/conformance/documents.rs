//! Small things under a name.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::store::Documents;

async fn put(documents: &dyn Documents, shelf: &str, name: &str, json: &'static str) {
    documents
        .put(shelf, name, Bytes::from_static(json.as_bytes()))
        .await
        .unwrap();
}

async fn names(documents: &dyn Documents, shelf: &str, prefix: &str) -> Vec<String> {
    documents
        .all(shelf, prefix)
        .await
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect()
}

/// What is put replaces what was there.
pub async fn the_last_document_counts(documents: Arc<dyn Documents>) {
    assert_eq!(documents.fetch("shelf", "a").await.unwrap(), None);
    put(&*documents, "shelf", "a", "1").await;
    put(&*documents, "shelf", "a", "{\"n\": 2}").await;

    assert_eq!(
        documents.fetch("shelf", "a").await.unwrap().as_deref(),
        Some(&b"{\"n\": 2}"[..])
    );
    assert_eq!(documents.all("shelf", "").await.unwrap().len(), 1);
}

/// With `put_new` it does not.
pub async fn the_first_document_stays(documents: Arc<dyn Documents>) {
    let put_new = async |json: &'static [u8]| {
        documents
            .put_new("shelf", "a", Bytes::from_static(json))
            .await
            .unwrap()
    };
    assert_eq!(put_new(b"1").await, "1");
    assert_eq!(put_new(b"2").await, "1");
    assert_eq!(documents.fetch("shelf", "a").await.unwrap().unwrap(), "1");
}

/// Who has read an older one has to read again.
pub async fn a_document_is_swapped_for_what_was_read(documents: Arc<dyn Documents>) {
    let swap = async |was: &'static [u8], json: &'static [u8]| {
        documents
            .swap(
                "shelf",
                "a",
                &Bytes::from_static(was),
                Bytes::from_static(json),
            )
            .await
            .unwrap()
    };
    assert!(!swap(b"1", b"2").await, "there is none");
    put(&*documents, "shelf", "a", "1").await;
    assert!(swap(b"1", b"2").await);
    assert!(!swap(b"1", b"3").await);
    assert_eq!(documents.fetch("shelf", "a").await.unwrap().unwrap(), "2");
}

/// And its name is free.
pub async fn a_removed_document_is_gone(documents: Arc<dyn Documents>) {
    put(&*documents, "shelf", "a", "1").await;
    assert!(documents.remove("shelf", "a").await.unwrap());
    assert!(!documents.remove("shelf", "a").await.unwrap());

    assert_eq!(documents.fetch("shelf", "a").await.unwrap(), None);
    assert_eq!(
        documents
            .put_new("shelf", "a", Bytes::from_static(b"2"))
            .await
            .unwrap(),
        "2"
    );
}

/// A prefix means its letters and nothing else.
pub async fn documents_are_found_by_prefix(documents: Arc<dyn Documents>) {
    for name in ["b", "a/2", "a/1", "a%", "A/1", "a", "ä", "a/\u{10FFFF}z"] {
        put(&*documents, "shelf", name, "0").await;
    }
    assert_eq!(
        names(&*documents, "shelf", "a/").await,
        ["a/1", "a/2", "a/\u{10FFFF}z"]
    );
    assert_eq!(names(&*documents, "shelf", "a%").await, ["a%"]);
    assert_eq!(names(&*documents, "shelf", "_").await, [""; 0]);
    assert_eq!(
        names(&*documents, "shelf", "").await,
        ["A/1", "a", "a%", "a/1", "a/2", "a/\u{10FFFF}z", "b", "ä"]
    );
}

/// The same name on two shelves is two documents.
pub async fn shelves_are_apart(documents: Arc<dyn Documents>) {
    put(&*documents, "one", "a", "1").await;
    put(&*documents, "two", "a", "2").await;
    documents.remove("one", "a").await.unwrap();

    assert_eq!(names(&*documents, "one", "").await, [""; 0]);
    assert_eq!(documents.fetch("two", "a").await.unwrap().unwrap(), "2");
}
