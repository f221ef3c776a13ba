//! The index of files in PostgreSQL, which several processes use.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tidegate_core::Account;
use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tidegate_core::file_index::{FileIndex, ReserveError, StoredFile};
use tidegate_core::store::{JobRecords, Store};
use tidegate_store::conformance::postgres_server::{SharedPostgres, TestDatabase};
use tidegate_store::conformance::samples::{finish, spec};
use tidegate_store::{DatabaseUse, FolderBlobs, PostgresOptions, PostgresStore};
use tokio::task::JoinSet;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// One of several processes that use the database.
async fn process(database: &TestDatabase) -> Arc<PostgresStore> {
    let options = PostgresOptions {
        database_use: DatabaseUse::Shared,
        ..PostgresOptions::default()
    };
    Arc::new(
        PostgresStore::open(&database.url(), &options)
            .await
            .unwrap(),
    )
}

fn ann() -> Account {
    Account::parse("ann").unwrap()
}

fn upload(id: &str, digest: &str, size: u64) -> Arc<StoredFile> {
    let now = Timestamp::now();
    Arc::new(StoredFile {
        id: id.to_owned(),
        name: "a\0b \u{1}.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        size,
        sha256: digest.to_owned(),
        md5: "0".repeat(32),
        metadata: RawValue::from_string(r#"{"a": "\u0000"}"#.to_owned()).unwrap(),
        created_at: now,
        expires_at: Some(now.checked_add(HOUR).unwrap()),
        job: None,
        weights_of: None,
    })
}

fn output(id: &str, job: &str) -> Arc<StoredFile> {
    Arc::new(StoredFile {
        expires_at: None,
        job: Some(job.to_owned()),
        ..StoredFile::clone(&upload(id, "d", 1))
    })
}

async fn add(index: &dyn FileIndex, account: &Account, file: &Arc<StoredFile>) {
    let reservation = index.reserve(account, file, None).await.unwrap();
    reservation.complete().await.unwrap();
}

async fn ids(index: &dyn FileIndex, account: &Account) -> Vec<String> {
    let found = index.uploads(account).await.unwrap();
    found.iter().map(|file| file.id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_visible_in_every_process_when_it_is_complete() {
    let database = SharedPostgres::start().database();
    let (one, other) = (process(&database).await, process(&database).await);
    let file = upload("f1", "d1", 3);
    let reservation = one.reserve(&ann(), &file, None).await.unwrap();
    assert!(
        other.find(&ann(), "f1").await.unwrap().is_none() && ids(&*other, &ann()).await.is_empty()
    );
    reservation.complete().await.unwrap();
    let found = other.find(&ann(), "f1").await.unwrap().unwrap();
    assert_eq!(
        serde_json::to_string(&*found).unwrap(),
        serde_json::to_string(&*file).unwrap()
    );
    add(&*one, &Account::ANONYMOUS, &upload("f2", "d2", 3)).await;
    assert_eq!(ids(&*other, &Account::ANONYMOUS).await, ["f2"]);
    assert!(
        other
            .find(&Account::ANONYMOUS, "f1")
            .await
            .unwrap()
            .is_none()
    );
    one.reserve(&ann(), &upload("f3", "d3", 3), None)
        .await
        .unwrap()
        .abandon()
        .await;
    assert_eq!(other.used_bytes(&ann()).await.unwrap(), 3);
    assert!(other.remove(&ann(), "f1").await.unwrap() && !one.remove(&ann(), "f1").await.unwrap());
    assert!(one.find(&ann(), "f1").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_uploads_of_several_processes_keep_to_the_quota() {
    let database = SharedPostgres::start().database();
    let mut uploads = JoinSet::new();
    for number in 0..4 {
        let store = process(&database).await;
        uploads.spawn(async move {
            let mut stored = 0;
            for n in 0..5 {
                let file = upload(&format!("f{number}-{n}"), "d", 3);
                match store.reserve(&ann(), &file, Some(10)).await {
                    Ok(reservation) => {
                        reservation.complete().await.unwrap();
                        stored += 1;
                    }
                    Err(ReserveError::Quota { used, max }) => {
                        assert!(used + 3 > max && max == 10, "{used}");
                    }
                    Err(ReserveError::Store(error)) => panic!("{error}"),
                }
            }
            stored
        });
    }
    assert_eq!(uploads.join_all().await.iter().sum::<usize>(), 3);
    let store = process(&database).await;
    let other = upload("g", "d", 11);
    assert!(store.reserve(&ann(), &other, Some(10)).await.is_err());
    add(&*store, &ann(), &output("o", "j")).await;
    assert_eq!(
        store.used_bytes(&ann()).await.unwrap(),
        9,
        "outputs do not count"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_files_and_files_of_removed_jobs_are_removed() {
    let database = SharedPostgres::start().database();
    let store = process(&database).await;
    let account = spec("j").account;
    store.insert(spec("j")).await.unwrap();
    let mut end = finish("j", 0, 1);
    end.completion.completed_at = Timestamp::UNIX_EPOCH;
    store.finish(end).await.unwrap();
    for file in [
        output("of-j", "j"),
        output("of-k", "k"),
        upload("f", "d", 1),
    ] {
        add(&*store, &account, &file).await;
    }
    let past = StoredFile {
        expires_at: Some(Timestamp::UNIX_EPOCH),
        ..StoredFile::clone(&upload("old", "d", 1))
    };
    add(&*store, &account, &Arc::new(past)).await;
    assert!(
        store.find(&account, "old").await.unwrap().is_none(),
        "it has expired"
    );
    let now = Timestamp::now();
    let exists = async |id: &str| store.find(&account, id).await.unwrap().is_some();

    store
        .remove_expired(now, now - HOUR, &*store)
        .await
        .unwrap();
    assert!(exists("of-k").await, "the job may not be stored yet");
    store.remove_expired(now, now, &*store).await.unwrap();
    assert!(exists("of-j").await && !exists("of-k").await && exists("f").await);
    // The clock of this process is ahead: nothing is removed too early.
    let ahead = now + 100 * HOUR;
    add(&*store, &account, &output("new", "k")).await;
    store
        .remove_expired(ahead, ahead - HOUR, &*store)
        .await
        .unwrap();
    assert!(exists("f").await && exists("new").await);

    assert_eq!(store.forget(now, 10).await.unwrap(), 1);
    store.remove_expired(now, now, &*store).await.unwrap();
    assert!(!exists("of-j").await && exists("f").await);
    assert_eq!(
        database.sql("SELECT count(*) FROM tidegate.files WHERE id = 'old'"),
        "0"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn weights_are_a_copy_that_outlives_the_file() {
    let database = SharedPostgres::start().database();
    let store = process(&database).await;
    let file = output("o", "j");
    add(&*store, &ann(), &file).await;
    let weights = Arc::new(StoredFile {
        id: "w".to_owned(),
        job: None,
        weights_of: Some("a/b:1".to_owned()),
        ..StoredFile::clone(&file)
    });
    assert!(store.add_copy(&ann(), "o", &weights).await.unwrap());
    let now = Timestamp::now();
    store.remove_expired(now, now, &*store).await.unwrap();
    assert!(store.find(&ann(), "o").await.unwrap().is_none());
    let found = store.weights().await.unwrap();
    assert_eq!(
        (found.len(), &found[0].0, &*found[0].1.id),
        (1, &ann(), "w")
    );
    let again = Arc::new(StoredFile {
        id: "x".to_owned(),
        ..StoredFile::clone(&weights)
    });
    assert!(
        !store.add_copy(&ann(), "o", &again).await.unwrap(),
        "the file is gone"
    );
}

/// Only contents of files that were removed, and that are older than a day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_contents_without_a_file_are_collected() {
    let database = SharedPostgres::start().database();
    let store = process(&database).await;
    let folder = tempfile::tempdir().unwrap();
    let blobs = FolderBlobs::open(folder.path().to_owned()).unwrap();
    let day_before = SystemTime::now() - 25 * HOUR;
    let (named, new, old) = ("a".repeat(64), "b".repeat(64), "c".repeat(64));
    for (name, is_old) in [
        (named.as_str(), true),
        (new.as_str(), false),
        (old.as_str(), true),
        ("shared-by-x", true),
    ] {
        let file = std::fs::File::create(folder.path().join(name)).unwrap();
        if is_old {
            file.set_modified(day_before).unwrap();
        }
    }
    // A row names the content before the file is complete.
    let reservation = store
        .reserve(&ann(), &upload("f", &named, 1), None)
        .await
        .unwrap();
    store.collect(&blobs).await.unwrap();
    let left = || {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<HashSet<_>>()
    };
    assert_eq!(
        left(),
        HashSet::from([named.clone(), new.clone(), "shared-by-x".to_owned()])
    );
    reservation.abandon().await;
    store.collect(&blobs).await.unwrap();
    assert!(!left().contains(&named));
}

/// Contents that are always old enough to be removed.
#[derive(Default)]
struct OldBlobs(Mutex<HashSet<String>>);

#[async_trait]
impl Blobs for OldBlobs {
    async fn put(&self, name: &str, _file: &Path) -> Result<(), BlobError> {
        self.0.lock().unwrap().insert(name.to_owned());
        Ok(())
    }

    async fn read(&self, _: &str, _: Range<u64>) -> Result<Box<dyn BlobReader>, BlobError> {
        Err(BlobError::Missing)
    }

    async fn remove(&self, name: &str) -> Result<(), BlobError> {
        self.0.lock().unwrap().remove(name);
        Ok(())
    }

    async fn names(&self) -> Result<Vec<String>, BlobError> {
        Ok(self.0.lock().unwrap().iter().cloned().collect())
    }

    async fn names_older_than(&self, _: Duration) -> Result<Vec<String>, BlobError> {
        self.names().await
    }

    async fn remove_older_than(&self, name: &str, _: Duration) -> Result<(), BlobError> {
        // Others go on in the meantime.
        tokio::task::yield_now().await;
        self.remove(name).await
    }
}

/// Even if all contents were old: the content of a complete file is there, whatever two processes collect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_collect_never_remove_the_content_of_a_file() {
    let database = SharedPostgres::start().database();
    let (blobs, is_over) = (
        Arc::new(OldBlobs::default()),
        Arc::new(AtomicBool::new(false)),
    );
    let mut collectors = JoinSet::new();
    for _ in 0..2 {
        let (store, blobs) = (process(&database).await, Arc::clone(&blobs));
        let is_over = Arc::clone(&is_over);
        collectors.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                store.collect(&*blobs).await.unwrap();
                // Without contents, nothing of it waits.
                tokio::task::yield_now().await;
            }
        });
    }
    let mut uploads = JoinSet::new();
    for number in 0..2 {
        let (store, blobs) = (process(&database).await, Arc::clone(&blobs));
        uploads.spawn(async move {
            for n in 0..40 {
                let (id, digest) = (format!("f{number}-{n}"), format!("{:064x}", n % 3));
                let file = upload(&id, &digest, 1);
                let reservation = store.reserve(&ann(), &file, None).await.unwrap();
                blobs.put(&digest, Path::new("")).await.unwrap();
                reservation.complete().await.unwrap();
                assert!(
                    blobs.0.lock().unwrap().contains(&digest),
                    "{id}: the content is gone"
                );
                store.remove(&ann(), &id).await.unwrap();
            }
        });
    }
    uploads.join_all().await;
    is_over.store(true, Ordering::Relaxed);
    collectors.join_all().await;
}
