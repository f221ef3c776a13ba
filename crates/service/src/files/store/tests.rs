use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use tidegate_core::JobKind;
use tidegate_core::Status;
use tidegate_core::lease::{Fence, Nonce};
use tidegate_core::record::{Api, Completion, JobSpec, Target};
use tidegate_core::store::{Documents, FinishOutcome, JobFinish, JobRecords};
use tidegate_store::{FolderBlobs, SqliteOptions, SqliteStore};

use super::*;

const LIMITS: FileLimits = FileLimits {
    upload_retention: Duration::from_secs(3600),
    output_retention: Duration::from_secs(600),
    max_bytes_per_account: Some(12),
};

struct Fixture {
    file_store: Arc<FileStore>,
    store: Arc<SqliteStore>,
    folder: tempfile::TempDir,
}

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path(), &SqliteOptions::default()).unwrap());
    let file_store = open(folder.path(), &store).await;
    Fixture {
        file_store,
        store,
        folder,
    }
}

async fn open(folder: &Path, store: &Arc<SqliteStore>) -> Arc<FileStore> {
    let files = folder.join("files");
    let blobs = Arc::new(FolderBlobs::open(files.clone()).unwrap());
    let documents = Arc::clone(store) as Arc<dyn Documents>;
    let index = MemoryFileIndex::open(documents, &*blobs).await.unwrap();
    Arc::new(FileStore::open(blobs, Spool::Own(files), Arc::new(index), LIMITS).unwrap())
}

impl Fixture {
    async fn writer(&self, body: &str) -> FileWriter {
        let mut writer = self.file_store.create_writer(0, 10).await.unwrap();
        writer.write(body.as_bytes()).await.unwrap();
        writer
    }

    async fn upload(&self, account: &Account, body: &str) -> Arc<StoredFile> {
        self.file_store
            .store_upload(account, self.writer(body).await, metadata())
            .await
            .unwrap()
    }

    async fn output(&self, job: &str, body: &str) -> Arc<StoredFile> {
        self.file_store
            .store_output(&ann(), &id(job), self.writer(body).await, metadata())
            .await
            .unwrap()
    }

    async fn reopen(&self) -> Arc<FileStore> {
        open(self.folder.path(), &self.store).await
    }

    fn on_disk(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("files")).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// Stores a job that ended at `completed_at`.
    async fn ended_job(&self, name: &str, completed_at: Timestamp) {
        let spec = JobSpec {
            id: id(name),
            account: ann(),
            kind: JobKind::Prediction,
            target: Target {
                model: "a/b".to_owned(),
                version: "0".repeat(64),
                deployment: None,
            },
            input: Bytes::from_static(b"{}"),
            files: Vec::new(),
            secrets: Vec::new(),
            context: Default::default(),
            destination: None,
            hook: None,
            api: Api::Replicate,
            policies: Api::Replicate.policies(),
            deadline: None,
            created_at: completed_at,
        };
        self.store.insert(spec).await.unwrap();
        let completion = Completion {
            completed_at,
            ..Completion::empty()
        };
        let finish = JobFinish {
            account: ann(),
            id: id(name),
            fence: Fence {
                attempt: 0,
                nonce: Nonce(0),
            },
            began_at: None,
            status: Status::Canceled,
            completion,
            message: None,
        };
        assert_eq!(
            self.store.finish(finish).await.unwrap(),
            FinishOutcome::Committed
        );
    }
}

fn ann() -> Account {
    Account::parse("ann").unwrap()
}

fn id(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

fn metadata() -> FileMetadata {
    let metadata = RawValue::from_string("{}".to_owned()).unwrap();
    FileMetadata {
        name: "a.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        metadata,
    }
}

#[tokio::test]
async fn equal_files_share_one_blob_until_the_last_is_removed() {
    let fixture = fixture().await;
    let (one, other) = (
        fixture.upload(&ann(), "hello").await,
        fixture.upload(&Account::ANONYMOUS, "hello").await,
    );
    assert_eq!(
        (one.md5.as_str(), one.size),
        ("5d41402abc4b2a76b9719d911017c592", 5)
    );
    assert_eq!(
        one.sha256,
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    assert_eq!(fixture.on_disk(), [one.sha256.as_str()]);
    let path = fixture.folder.path().join("files").join(&one.sha256);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        fixture
            .file_store
            .find_upload(&ann(), &other.id)
            .await
            .unwrap()
            .is_none()
            && !fixture
                .file_store
                .remove_upload(&ann(), &other.id)
                .await
                .unwrap()
    );
    assert!(
        fixture
            .file_store
            .remove_upload(&ann(), &one.id)
            .await
            .unwrap()
            && !fixture
                .file_store
                .remove_upload(&ann(), &one.id)
                .await
                .unwrap()
    );
    assert_eq!(fixture.on_disk().len(), 1);
    assert!(
        fixture
            .file_store
            .remove_upload(&Account::ANONYMOUS, &other.id)
            .await
            .unwrap()
    );
    assert_eq!(fixture.on_disk().len(), 0);
}

#[tokio::test]
async fn a_rejected_or_abandoned_upload_leaves_no_file() {
    let fixture = fixture().await;
    let mut writer = fixture.file_store.create_writer(0, 10).await.unwrap();
    writer.write(b"0123456789").await.unwrap();
    assert!(matches!(
        writer.write(b"0").await,
        Err(FileStoreError::TooLarge(10))
    ));
    drop(writer);
    assert_eq!(fixture.on_disk().len(), 0);
}

#[tokio::test]
async fn an_upload_that_would_fill_the_disk_is_refused() {
    let fixture = fixture().await;
    assert!(matches!(
        fixture.file_store.create_writer(u64::MAX, u64::MAX).await,
        Err(FileStoreError::NoSpace)
    ));
    assert_eq!(fixture.on_disk().len(), 0);
}

#[tokio::test]
async fn files_are_found_by_url_on_any_host() {
    let fixture = fixture().await;
    let (file, output) = (
        fixture.upload(&ann(), "x").await,
        fixture.output("j", "y").await,
    );
    for (url, account, found) in [
        (
            format!("http://127.0.0.1:5000/v1/files/{}", file.id),
            ann(),
            true,
        ),
        (
            format!("https://h/api/v1/files/{}/download?owner=ann", file.id),
            ann(),
            true,
        ),
        (
            format!("https://h/v1/files/{}/out.png?owner=ann", output.id),
            ann(),
            true,
        ),
        (
            format!("https://h/v1/files/{}", file.id),
            Account::ANONYMOUS,
            false,
        ),
        (format!("https://h/v1/files/{}/x/y", file.id), ann(), false),
        (format!("https://h/files/{}", file.id), ann(), false),
        ("https://h/v1/files/".to_owned(), ann(), false),
    ] {
        let url = Url::parse(&url).unwrap();
        let id = file_id_in(&url).unwrap_or("-");
        let is_found = fixture.file_store.find(&account, id).await.unwrap();
        assert_eq!(is_found.is_some(), found, "{url}");
    }
}

#[tokio::test]
async fn expired_files_and_orphaned_blobs_are_removed_and_others_survive_a_restart() {
    let fixture = fixture().await;
    let file = fixture.upload(&ann(), "x").await;
    std::fs::write(fixture.folder.path().join("files/partial.part"), "half").unwrap();
    std::fs::write(
        fixture.folder.path().join("files").join("0".repeat(64)),
        "unreferenced",
    )
    .unwrap();
    let reopened = fixture.reopen().await;
    let expires_at = file.expires_at.unwrap();
    reopened.collect().await;
    reopened
        .sweep(
            expires_at.checked_sub(Duration::from_secs(1)).unwrap(),
            &*fixture.store,
        )
        .await;
    assert_eq!(
        (
            reopened.list_uploads(&ann()).await.unwrap().len(),
            fixture.on_disk()
        ),
        (1, vec![file.sha256.clone()])
    );
    reopened.sweep(expires_at, &*fixture.store).await;
    assert_eq!(
        (
            reopened.list_uploads(&ann()).await.unwrap().len(),
            fixture.on_disk().len()
        ),
        (0, 0)
    );
    assert_eq!(
        fixture
            .reopen()
            .await
            .list_uploads(&ann())
            .await
            .unwrap()
            .len(),
        0
    );
}

#[tokio::test]
async fn output_files_are_removed_with_their_job() {
    let fixture = fixture().await;
    let now = Timestamp::now();
    fixture.ended_job("j", now).await;
    let file = fixture.output("j", "x").await;
    let later = now.checked_add(Duration::from_secs(3600)).unwrap();
    let reopened = fixture.reopen().await;
    reopened.sweep(later, &*fixture.store).await;
    assert!(
        reopened.find(&ann(), &file.id).await.unwrap().is_some(),
        "the job still exists"
    );
    assert!(
        reopened
            .find_upload(&ann(), &file.id)
            .await
            .unwrap()
            .is_none()
            && reopened.list_uploads(&ann()).await.unwrap().is_empty(),
        "an output is not an upload"
    );
    assert!(!reopened.remove_upload(&ann(), &file.id).await.unwrap());

    assert_eq!(fixture.store.forget(later, 10).await.unwrap(), 1);
    reopened.sweep(now, &*fixture.store).await;
    assert!(
        reopened.find(&ann(), &file.id).await.unwrap().is_some(),
        "within the retention of outputs"
    );
    reopened.sweep(later, &*fixture.store).await;
    assert!(
        reopened.find(&ann(), &file.id).await.unwrap().is_none() && fixture.on_disk().is_empty()
    );
}

#[tokio::test]
async fn only_placeholders_of_the_job_become_urls() {
    let fixture = fixture().await;
    let (one, other, upload) = (
        fixture.output("j", "1").await,
        fixture.output("k", "2").await,
        fixture.upload(&ann(), "3").await,
    );
    let replace = |json: String| {
        let replaced =
            fixture
                .file_store
                .replace_placeholders(&ann(), &id("j"), &json.into(), |file| {
                    format!("http://h/\"{}", file.size)
                });
        String::from_utf8(replaced.to_vec()).unwrap()
    };
    let placeholder_for =
        |job: &str, file: &StoredFile| fixture.file_store.placeholder_for(&ann(), &id(job), file);
    let placeholder = placeholder_for("j", &one);
    assert_eq!(
        replace(format!(
            r#"{{"a":["{placeholder}","{placeholder}"],"b":1}}"#
        )),
        r#"{"a":["http://h/\"1","http://h/\"1"],"b":1}"#
    );
    for same in [
        format!(r#""{placeholder} ""#),
        format!(r#""a {placeholder}""#),
        format!(r#""\"{placeholder}\"""#),
        format!(r#""{}""#, placeholder_for("k", &other)),
        format!(r#""{}""#, placeholder_for("j", &upload)),
        r#""tidegate-file:""#.to_owned(),
        r#""tidegate-file:é""#.to_owned(),
        r#""tidegate-file:0""#.to_owned(),
        "[]".to_owned(),
    ] {
        assert_eq!(replace(same.clone()), same);
    }
}

#[tokio::test]
async fn the_quota_limits_uploads_and_not_outputs() {
    let fixture = fixture().await;
    fixture.output("j", "0123456789").await;
    let first = fixture.upload(&ann(), "0123456").await;
    let refused = fixture
        .file_store
        .store_upload(&ann(), fixture.writer("012345").await, metadata())
        .await;
    assert!(matches!(
        refused,
        Err(FileStoreError::Quota { used: 7, max: 12 })
    ));
    assert!(
        fixture.file_store.check_quota(&ann(), 6).await.is_err()
            && fixture.file_store.check_quota(&ann(), 5).await.is_ok()
    );
    fixture.upload(&Account::ANONYMOUS, "012345").await;
    assert_eq!(
        (
            fixture.file_store.list_uploads(&ann()).await.unwrap().len(),
            fixture.on_disk().len()
        ),
        (1, 3),
        "the refused upload left no file"
    );
    fixture
        .file_store
        .remove_upload(&ann(), &first.id)
        .await
        .unwrap();
    fixture.upload(&ann(), "012345").await;
    fixture.upload(&ann(), "012345").await;
}

#[tokio::test]
async fn concurrent_uploads_count_together() {
    let fixture = fixture().await;
    let file = Arc::new(StoredFile {
        size: 10,
        ..StoredFile::clone(&*fixture.upload(&Account::ANONYMOUS, "x").await)
    });
    let index = &fixture.file_store.index;
    let reservation = index.reserve(&ann(), &file, Some(12)).await.unwrap();
    assert!(
        fixture.file_store.check_quota(&ann(), 3).await.is_err()
            && fixture
                .file_store
                .check_quota(&Account::ANONYMOUS, 3)
                .await
                .is_ok()
    );
    drop(reservation);
    assert!(fixture.file_store.check_quota(&ann(), 12).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_uploads_and_removals_keep_referenced_blobs() {
    let fixture = Arc::new(fixture().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let fixture = Arc::clone(&fixture);
        tasks.spawn(async move {
            for _ in 0..80 {
                let file = fixture.upload(&Account::ANONYMOUS, "1").await;
                let mut bytes = fixture
                    .file_store
                    .read(&file.sha256, 0..1)
                    .await
                    .expect("the blob is referenced");
                assert_eq!(bytes.next().await.unwrap().unwrap(), "1");
                assert!(
                    fixture
                        .file_store
                        .remove_upload(&Account::ANONYMOUS, &file.id)
                        .await
                        .unwrap()
                );
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(fixture.on_disk().len(), 0);
}

#[tokio::test]
async fn weights_outlive_their_job_and_are_removed_with_their_version() {
    let fixture = fixture().await;
    let output = fixture.output("j", "0123456789").await;
    let weights = fixture
        .file_store
        .store_weights(&ann(), &output, "me/mine:1")
        .await
        .unwrap();
    let again = fixture
        .file_store
        .store_weights(&ann(), &output, "me/mine:1")
        .await
        .unwrap();
    assert_eq!(
        (weights.id.as_str(), weights.sha256.as_str()),
        (again.id.as_str(), output.sha256.as_str())
    );
    let later = Timestamp::now() + Duration::from_secs(10_000);
    fixture.file_store.sweep(later, &*fixture.store).await;
    assert!(
        fixture
            .file_store
            .find(&ann(), &output.id)
            .await
            .unwrap()
            .is_none()
            && fixture.on_disk().len() == 1
    );
    assert!(
        fixture
            .file_store
            .list_uploads(&ann())
            .await
            .unwrap()
            .is_empty(),
        "weights are not uploads"
    );
    assert!(
        fixture.file_store.check_quota(&ann(), 2).await.is_ok()
            && fixture.file_store.check_quota(&ann(), 3).await.is_err(),
        "weights count towards the quota"
    );
    assert!(
        !fixture
            .file_store
            .remove_upload(&ann(), &weights.id)
            .await
            .unwrap()
    );
    assert!(
        fixture
            .file_store
            .store_weights(&ann(), &output, "me/mine:2")
            .await
            .is_err(),
        "the file was removed"
    );

    let file_store = fixture.reopen().await;
    file_store
        .copy(&weights, &fixture.folder.path().join("copy"))
        .await
        .unwrap();
    file_store
        .remove_weights(|file| file.weights_of.as_deref() == Some("me/mine:2"))
        .await
        .unwrap();
    assert_eq!(fixture.on_disk().len(), 1);
    file_store
        .remove_weights(|file| file.weights_of.as_deref() == Some("me/mine:1"))
        .await
        .unwrap();
    assert_eq!(fixture.on_disk().len(), 0);
}

#[tokio::test]
async fn a_placeholder_resolves_only_for_its_own_job() {
    let fixture = fixture().await;
    let (output, upload) = (
        fixture.output("j", "y").await,
        fixture.upload(&ann(), "x").await,
    );
    let resolve = async |job: &str, text: &str| {
        let (ann, job) = (ann(), id(job));
        let found = fixture.file_store.resolve_weights(&ann, &job, text);
        found.await.unwrap().map(|file| file.id.clone())
    };
    let placeholder = fixture
        .file_store
        .placeholder_for(&ann(), &id("j"), &output);
    assert_eq!(resolve("j", &placeholder).await, Some(output.id.clone()));
    assert_eq!(resolve("k", &placeholder).await, None);
    assert_eq!(
        resolve("j", &format!("https://h/v1/files/{}", upload.id)).await,
        Some(upload.id.clone())
    );
    assert_eq!(resolve("j", "w.bin").await, None);
}
