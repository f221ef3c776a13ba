//! The migration of a data folder.

use std::path::Path;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tidegate_core::file_index::{FileIndex, StoredFile};
use tidegate_core::record::Completion;
use tidegate_core::store::{Documents, JobFinish, JobRecords, Store, StoreError};
use tidegate_core::{Account, JobId};
use tidegate_store::conformance::postgres_server::SharedPostgres;
use tidegate_store::conformance::samples::{ann, finish, finish_leased, id, lease, leased, spec};
use tidegate_store::{
    ContentCopy, DataFolderMigration, DatabaseUse, FileTransfer, MigrationError, PostgresOptions,
    PostgresStore, SqliteOptions, SqliteStore,
};

/// More than are moved at once.
const FILES: usize = 40;

/// Copies nothing, and fails at one file.
#[derive(Default)]
struct FakeTransfer {
    fails_at: Option<String>,
    damaged: Option<String>,
    copied: Mutex<Vec<String>>,
}

#[async_trait]
impl FileTransfer for FakeTransfer {
    async fn copy_content(&self, file: &StoredFile) -> Result<ContentCopy, StoreError> {
        if self.fails_at.as_ref() == Some(&file.id) {
            return Err(StoreError::Unavailable("no bucket".to_owned()));
        }
        self.copied.lock().unwrap().push(file.id.clone());
        Ok(if self.damaged.as_ref() == Some(&file.id) {
            ContentCopy::Unreadable
        } else {
            ContentCopy::Stored
        })
    }

    fn adapt_output(&self, account: &Account, job: &JobId, output: &Bytes) -> Bytes {
        let output = String::from_utf8_lossy(output);
        output
            .replace("placeholder", &format!("{account} {job}"))
            .into()
    }
}

fn file(number: usize) -> StoredFile {
    StoredFile {
        id: format!("f{number:02}"),
        name: "a.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        size: 1,
        sha256: format!("{number:064}"),
        md5: "0".repeat(32),
        metadata: RawValue::from_string("{}".to_owned()).unwrap(),
        created_at: Timestamp::now(),
        expires_at: None,
        job: Some("a".to_owned()),
        weights_of: None,
    }
}

/// A data folder with files, one of which has expired, and a job.
async fn fill(folder: &Path) {
    let store = SqliteStore::open(folder, &SqliteOptions::default()).unwrap();
    let put = async |name: String, file: &StoredFile| {
        let json = serde_json::to_vec(file).unwrap().into();
        store.put("files", &name, json).await.unwrap();
    };
    for number in 0..FILES {
        let file = file(number);
        put(format!("ann/{}", file.id), &file).await;
    }
    let expired = StoredFile {
        job: None,
        expires_at: Some(Timestamp::UNIX_EPOCH),
        ..file(90)
    };
    put("ann/f90".to_owned(), &expired).await;
    let weights = StoredFile {
        job: None,
        weights_of: Some("ann/mine:1".to_owned()),
        ..file(91)
    };
    put("/f91".to_owned(), &weights).await;
    store.insert(spec("a")).await.unwrap();
    let ended = finish("a", 0, 2);
    let completion = Completion {
        output: Some(Bytes::from_static(br#""placeholder""#)),
        ..ended.completion
    };
    let ended = JobFinish {
        completion,
        ..ended
    };
    store.finish(ended).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_migration_of_files_loses_and_repeats_none() {
    let (folder, database) = (
        tempfile::tempdir().unwrap(),
        SharedPostgres::start().database(),
    );
    fill(folder.path()).await;
    let options = PostgresOptions {
        database_use: DatabaseUse::Shared,
        ..PostgresOptions::default()
    };
    let target = PostgresStore::open(&database.url(), &options)
        .await
        .unwrap();
    let migration = DataFolderMigration::open(folder.path()).unwrap();
    assert_eq!(migration.counts().await.unwrap().files, FILES + 1);

    let failing = FakeTransfer {
        fails_at: Some("f35".to_owned()),
        ..FakeTransfer::default()
    };
    let begun = migration.begin(&target, "target").await.unwrap();
    let result = begun.run(Some(&failing)).await;
    assert!(
        matches!(result, Err(MigrationError::Store(_))),
        "{result:?}"
    );
    assert!(target.find(&ann(), "f00").await.unwrap().is_some());
    assert!(target.find(&ann(), "f35").await.unwrap().is_none());
    assert!(FileIndex::remove(&target, &ann(), "f01").await.unwrap());

    let again = FakeTransfer {
        damaged: Some("f36".to_owned()),
        ..FakeTransfer::default()
    };
    let begun = migration.begin(&target, "target").await.unwrap();
    let report = begun.run(Some(&again)).await.unwrap();
    assert_eq!(report.unreadable, 1);
    let copied = again.copied.lock().unwrap().clone();
    assert!(!copied.contains(&"f00".to_owned()) && copied.contains(&"f35".to_owned()));
    for number in 0..FILES {
        let found = target.find(&ann(), &file(number).id).await.unwrap();
        // Removed by a client of the cluster; damaged.
        assert_eq!(found.is_some(), ![1, 36].contains(&number), "{number}");
    }
    assert!(target.find(&ann(), "f90").await.unwrap().is_none());
    let [(owner, weights)] = &target.weights().await.unwrap()[..] else {
        panic!("one file has weights")
    };
    assert!(owner.is_anonymous() && weights.id == "f91");
    let job = target.get(&ann(), &id("a")).await.unwrap().unwrap();
    let output = job.completion.unwrap().output.unwrap();
    assert_eq!(&output[..], br#""ann a""#);
    assert!(target.all("files", "").await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_keeps_its_attempts() {
    let (folder, database) = (
        tempfile::tempdir().unwrap(),
        SharedPostgres::start().database(),
    );
    let mut before = Vec::new();
    {
        let source = SqliteStore::open(folder.path(), &SqliteOptions::default()).unwrap();
        for name in ["once", "open", "ended"] {
            source.insert(spec(name)).await.unwrap();
            let mut fence = leased(&source, lease(name, 0, 1)).await;
            for after in 1..3 {
                if name != "once" {
                    fence = leased(&source, lease(name, after, u128::from(after) + 1)).await;
                }
            }
            if name != "open" {
                source.finish(finish_leased(name, fence, 9)).await.unwrap();
            }
            before.push(source.attempts(&ann(), &id(name)).await.unwrap());
        }
    }
    assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [1, 3, 3]);

    let options = PostgresOptions {
        database_use: DatabaseUse::Shared,
        ..PostgresOptions::default()
    };
    let target = PostgresStore::open(&database.url(), &options)
        .await
        .unwrap();
    let migration = DataFolderMigration::open(folder.path()).unwrap();
    let begun = migration.begin(&target, "target").await.unwrap();
    begun.run(None).await.unwrap();
    let mut after = Vec::new();
    for name in ["once", "open", "ended"] {
        after.push(target.attempts(&ann(), &id(name)).await.unwrap());
    }
    assert_eq!(after, before);
}
