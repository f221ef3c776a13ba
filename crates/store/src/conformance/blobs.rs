//! The contract of every blob backend. A backend writes
//! `tidegate_store::blobs_conformance!(open);`, where `open` is `async fn() -> (Guard, PathBuf,
//! Arc<dyn Blobs>)`: a guard that cleans up when dropped, a folder for the files to put, and an
//! empty backend.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::blobs::{BlobError, Blobs};

/// Makes a test of every case of the suite.
#[macro_export]
macro_rules! blobs_conformance {
    ($open:ident) => {
        $crate::blobs_conformance!(@cases $open:
            a_blob_can_be_read,
            parts_can_be_read,
            an_empty_blob_exists,
            the_same_blob_can_be_put_again,
            a_removed_blob_is_gone,
            names_are_listed,
            large_blobs_are_complete,
            a_missing_file_cannot_be_put,
            only_old_blobs_are_removed,
        );
    };
    (@cases $open:ident: $($case:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let (_guard, spool, blobs) = $open().await;
                $crate::conformance::blobs::$case(spool, blobs).await;
            }
        )*
    };
}

async fn put(blobs: &dyn Blobs, spool: &Path, name: &str, body: &[u8]) {
    let file = spool.join(format!("{name}.part"));
    std::fs::write(&file, body).unwrap();
    blobs.put(name, &file).await.unwrap();
}

async fn read(blobs: &dyn Blobs, name: &str, range: Range<u64>) -> Result<Vec<u8>, BlobError> {
    let mut reader = blobs.read(name, range).await?;
    let mut body = Vec::new();
    while let Some(bytes) = reader.next().await? {
        assert!(!bytes.is_empty());
        body.extend_from_slice(&bytes);
    }
    Ok(body)
}

async fn names(blobs: &dyn Blobs) -> Vec<String> {
    let mut names: Vec<_> = blobs
        .names()
        .await
        .unwrap()
        .into_iter()
        .filter(|name| !name.ends_with(".part"))
        .collect();
    names.sort();
    names
}

/// Byte for byte.
pub async fn a_blob_can_be_read(spool: PathBuf, blobs: Arc<dyn Blobs>) {
    put(&*blobs, &spool, "a1", b"hello\0\xff").await;
    assert_eq!(read(&*blobs, "a1", 0..7).await.unwrap(), b"hello\0\xff");
    assert!(matches!(
        read(&*blobs, "a2", 0..7).await,
        Err(BlobError::Missing)
    ));
}

/// At the start, in the middle and at the end.
pub async fn parts_can_be_read(spool: PathBuf, blobs: Arc<dyn Blobs>) {
    put(&*blobs, &spool, "a1", b"0123456789").await;
    for (range, want) in [
        (0..1, "0"),
        (3..6, "345"),
        (9..10, "9"),
        (0..10, "0123456789"),
        (4..4, ""),
    ] {
        assert_eq!(
            read(&*blobs, "a1", range.clone()).await.unwrap(),
            want.as_bytes(),
            "{range:?}"
        );
    }
}

/// It has no bytes, but exists.
pub async fn an_empty_blob_exists(spool: PathBuf, blobs: Arc<dyn Blobs>) {
    put(&*blobs, &spool, "a1", b"").await;
    assert_eq!(read(&*blobs, "a1", 0..0).await.unwrap(), b"");
    assert_eq!(names(&*blobs).await, ["a1"]);
}

/// The name of a blob is the hash of its content, so equal content is put again under the same
/// name.
pub async fn the_same_blob_can_be_put_again(spool: PathBuf, blobs: Arc<dyn Blobs>) {
    put(&*blobs, &spool, "a1", b"hello").await;
    put(&*blobs, &spool, "a1", b"hello").await;
    assert_eq!(read(&*blobs, "a1", 0..5).await.unwrap(), b"hello");
    assert_eq!(names(&*blobs).await, ["a1"]);
}

/// Removing a blob twice is not an error.
pub async fn a_removed_blob_is_gone(spool: PathBuf, blobs: Arc<dyn Blobs>) {
    put(&*blobs, &spool, "a1", b"hello").await;
    put(&*blobs, &spool, "a2", b"hello").await;
    blobs.remove("a1").await.unwrap();
    blobs.remove("a1").await.unwrap();
    assert!(matches!(
        read(&*blobs, "a1", 0..5).await,
        Err(BlobError::Missing)
    ));
    assert_eq!(names(&*blobs).await, ["a2"]);
}

/// All names are listed, also if there are many.
pub async fn names_are_listed(spool: PathBuf, blobs: Arc<dyn Blobs>) {
    assert!(names(&*blobs).await.is_empty());
    for n in 0..30 {
        put(&*blobs, &spool, &format!("a{n:02}"), b"x").await;
    }
    assert_eq!(
        names(&*blobs).await,
        (0..30).map(|n| format!("a{n:02}")).collect::<Vec<_>>()
    );
}

/// Larger than one part or chunk.
pub async fn large_blobs_are_complete(spool: PathBuf, blobs: Arc<dyn Blobs>) {
    let body: Vec<u8> = (0..20 * 1024 * 1024u32).map(|n| (n / 3) as u8).collect();
    put(&*blobs, &spool, "a1", &body).await;
    assert!(read(&*blobs, "a1", 0..body.len() as u64).await.unwrap() == body);
    let (from, to) = (7 * 1024 * 1024 + 1, 17 * 1024 * 1024 + 5);
    assert!(read(&*blobs, "a1", from as u64..to as u64).await.unwrap() == body[from..to]);
}

/// A failed `put` creates nothing.
pub async fn a_missing_file_cannot_be_put(spool: PathBuf, blobs: Arc<dyn Blobs>) {
    assert!(blobs.put("a1", &spool.join("nothing.part")).await.is_err());
    assert!(names(&*blobs).await.is_empty());
}

/// A blob that was put again is new.
pub async fn only_old_blobs_are_removed(spool: PathBuf, blobs: Arc<dyn Blobs>) {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    put(&*blobs, &spool, "a1", b"hello").await;
    assert!(blobs.names_older_than(DAY).await.unwrap().is_empty());
    blobs.remove_older_than("a1", DAY).await.unwrap();
    assert_eq!(names(&*blobs).await, ["a1"]);
    let old = blobs.names_older_than(Duration::ZERO).await.unwrap();
    assert!(old.contains(&"a1".to_owned()), "{old:?}");
    blobs.remove_older_than("a1", Duration::ZERO).await.unwrap();
    blobs.remove_older_than("a1", Duration::ZERO).await.unwrap();
    assert!(names(&*blobs).await.is_empty());
}
