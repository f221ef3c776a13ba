use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;
use tidegate_core::JobKind;
use tidegate_core::Status;
use tidegate_core::record::{Api, Completion, JobSpec, Target};
use tidegate_core::store::JobFinish;
use tidegate_store::{FolderBlobs, SqliteOptions, SqliteStore};

use super::*;

const RULES: FileRules = FileRules {
    keep_for: Duration::from_secs(3600),
    keep_jobs_for: Duration::from_secs(600),
    max_per_account: Some(12),
};

struct Desk {
    file_store: Arc<FileStore>,
    store: Arc<SqliteStore>,
    folder: tempfile::TempDir,
}

async fn service() -> Desk {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path(), &SqliteOptions::default()).unwrap());
    let file_store = open(folder.path(), &store).await;
    Desk {
        file_store,
        store,
        folder,
    }
}

async fn open(folder: &Path, store: &Arc<SqliteStore>) -> Arc<FileStore> {
    let files = folder.join("files");
    let blobs = Arc::new(FolderBlobs::open(files.clone()).unwrap());
    FileStore::open(blobs, files, Arc::clone(store) as Arc<dyn Documents>, RULES)
        .await
        .unwrap()
}

impl Desk {
    async fn incoming(&self, body: &str) -> FileWriter {
        let mut incoming = self.file_store.receive(0, 10).await.unwrap();
        incoming.write(body.as_bytes()).await.unwrap();
        incoming
    }

    async fn keep(&self, account: &Account, body: &str) -> Arc<StoredFile> {
        self.file_store
            .keep(account, self.incoming(body).await, label())
            .await
            .unwrap()
    }

    async fn give(&self, job: &str, body: &str) -> Arc<StoredFile> {
        self.file_store
            .keep_output(&ann(), &id(job), self.incoming(body).await, label())
            .await
            .unwrap()
    }

    async fn again(&self) -> Arc<FileStore> {
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

    /// A job that is over.
    async fn job(&self, name: &str, completed_at: Timestamp) {
        let order = JobSpec {
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
        self.store.insert(order).await.unwrap();
        let completion = Completion {
            completed_at,
            ..Completion::empty()
        };
        let finish = JobFinish {
            account: ann(),
            id: id(name),
            attempt: 0,
            began_at: None,
            status: Status::Canceled,
            completion,
            letter: None,
        };
        assert!(self.store.finish(finish).await.unwrap());
    }
}

fn ann() -> Account {
    Account::parse("ann").unwrap()
}

fn id(text: &str) -> JobId {
    JobId::parse(text).unwrap()
}

fn label() -> FileMetadata {
    let metadata = RawValue::from_string("{}".to_owned()).unwrap();
    FileMetadata {
        name: "a.txt".to_owned(),
        content_type: "text/plain".to_owned(),
        metadata,
    }
}

#[tokio::test]
async fn one_content_is_kept_once_and_as_long_as_somebody_has_it() {
    let service = service().await;
    let (one, other) = (
        service.keep(&ann(), "hello").await,
        service.keep(&Account::ANONYMOUS, "hello").await,
    );
    assert_eq!(
        (one.md5.as_str(), one.size),
        ("5d41402abc4b2a76b9719d911017c592", 5)
    );
    assert_eq!(
        one.sha256,
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    assert_eq!(service.on_disk(), [one.sha256.as_str()]);
    let path = service.folder.path().join("files").join(&one.sha256);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        service.file_store.get(&ann(), &other.id).is_none()
            && !service.file_store.remove(&ann(), &other.id).await.unwrap()
    );
    assert!(
        service.file_store.remove(&ann(), &one.id).await.unwrap()
            && !service.file_store.remove(&ann(), &one.id).await.unwrap()
    );
    assert_eq!(service.on_disk().len(), 1);
    assert!(
        service
            .file_store
            .remove(&Account::ANONYMOUS, &other.id)
            .await
            .unwrap()
    );
    assert_eq!(service.on_disk().len(), 0);
}

#[tokio::test]
async fn what_is_too_large_or_given_up_leaves_nothing() {
    let service = service().await;
    let mut incoming = service.file_store.receive(0, 10).await.unwrap();
    incoming.write(b"0123456789").await.unwrap();
    assert!(matches!(
        incoming.write(b"0").await,
        Err(FileStoreError::TooLarge(10))
    ));
    drop(incoming);
    assert_eq!(service.on_disk().len(), 0);
}

#[tokio::test]
async fn what_would_fill_the_disk_is_not_begun() {
    let service = service().await;
    assert!(matches!(
        service.file_store.receive(u64::MAX, u64::MAX).await,
        Err(FileStoreError::NoSpace)
    ));
    assert_eq!(service.on_disk().len(), 0);
}

#[tokio::test]
async fn files_are_found_by_their_addresses_whatever_the_host() {
    let service = service().await;
    let (file, output) = (
        service.keep(&ann(), "x").await,
        service.give("j", "y").await,
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
        assert_eq!(
            service
                .file_store
                .find_by_address(&account, &Url::parse(&url).unwrap())
                .is_some(),
            found,
            "{url}"
        );
    }
}

#[tokio::test]
async fn after_its_time_a_file_is_gone_and_a_restart_keeps_the_others() {
    let service = service().await;
    let file = service.keep(&ann(), "x").await;
    std::fs::write(service.folder.path().join("files/left.part"), "half").unwrap();
    std::fs::write(
        service.folder.path().join("files").join("0".repeat(64)),
        "of nothing",
    )
    .unwrap();
    let again = service.again().await;
    let expires_at = file.expires_at.unwrap();
    again
        .sweep(
            expires_at.checked_sub(Duration::from_secs(1)).unwrap(),
            &*service.store,
        )
        .await;
    assert_eq!(
        (again.list(&ann()).len(), service.on_disk()),
        (1, vec![file.sha256.clone()])
    );
    again.sweep(expires_at, &*service.store).await;
    assert_eq!((again.list(&ann()).len(), service.on_disk().len()), (0, 0));
    assert_eq!(service.again().await.list(&ann()).len(), 0);
}

#[tokio::test]
async fn what_a_job_gave_goes_with_the_job() {
    let service = service().await;
    let now = Timestamp::now();
    service.job("j", now).await;
    let file = service.give("j", "x").await;
    let later = now.checked_add(Duration::from_secs(3600)).unwrap();
    let again = service.again().await;
    again.sweep(later, &*service.store).await;
    assert!(again.find(&ann(), &file.id).is_some(), "the job is there");
    assert!(
        again.get(&ann(), &file.id).is_none() && again.list(&ann()).is_empty(),
        "it is not among those of callers"
    );
    assert!(!again.remove(&ann(), &file.id).await.unwrap());

    assert_eq!(service.store.forget(later, 10).await.unwrap(), 1);
    again.sweep(now, &*service.store).await;
    assert!(
        again.find(&ann(), &file.id).is_some(),
        "too young for its job to be forgotten"
    );
    again.sweep(later, &*service.store).await;
    assert!(again.find(&ann(), &file.id).is_none() && service.on_disk().is_empty());
}

#[tokio::test]
async fn names_of_files_become_addresses_and_nothing_else_does() {
    let service = service().await;
    let (one, other, upload) = (
        service.give("j", "1").await,
        service.give("k", "2").await,
        service.keep(&ann(), "3").await,
    );
    let told = |json: String| {
        let told = service
            .file_store
            .told(&ann(), &id("j"), &json.into(), |file| {
                format!("http://h/\"{}", file.size)
            });
        String::from_utf8(told.to_vec()).unwrap()
    };
    let name = output_urls::name_of(&one);
    assert_eq!(
        told(format!(r#"{{"a":["{name}","{name}"],"b":1}}"#)),
        r#"{"a":["http://h/\"1","http://h/\"1"],"b":1}"#
    );
    for same in [
        format!(r#""{name} ""#),
        format!(r#""a {name}""#),
        format!(r#""\"{name}\"""#),
        format!(r#""{}""#, output_urls::name_of(&other)),
        format!(r#""{}""#, output_urls::name_of(&upload)),
        r#""tidegate-file:""#.to_owned(),
        r#""tidegate-file:é""#.to_owned(),
        r#""tidegate-file:0""#.to_owned(),
        "[]".to_owned(),
    ] {
        assert_eq!(told(same.clone()), same);
    }
}

#[tokio::test]
async fn an_account_has_its_bound_and_jobs_have_none() {
    let service = service().await;
    service.give("j", "0123456789").await;
    let first = service.keep(&ann(), "0123456").await;
    let refused = service
        .file_store
        .keep(&ann(), service.incoming("012345").await, label())
        .await;
    assert!(matches!(
        refused,
        Err(FileStoreError::Quota { used: 7, max: 12 })
    ));
    assert!(
        service.file_store.has_room(&ann(), 6).is_err()
            && service.file_store.has_room(&ann(), 5).is_ok()
    );
    service.keep(&Account::ANONYMOUS, "012345").await;
    assert_eq!(
        (
            service.file_store.list(&ann()).len(),
            service.on_disk().len()
        ),
        (1, 3),
        "nothing is left of what was refused"
    );
    service.file_store.remove(&ann(), &first.id).await.unwrap();
    service.keep(&ann(), "012345").await;
    service.keep(&ann(), "012345").await;
}

#[tokio::test]
async fn what_comes_at_once_counts_together() {
    let service = service().await;
    let place = service.file_store.reserve(&ann(), 10).unwrap();
    assert!(
        service.file_store.has_room(&ann(), 3).is_err()
            && service.file_store.has_room(&Account::ANONYMOUS, 3).is_ok()
    );
    drop(place);
    assert!(service.file_store.has_room(&ann(), 12).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_has_a_content_has_its_bytes_however_many_come_and_go() {
    let service = Arc::new(service().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let service = Arc::clone(&service);
        tasks.spawn(async move {
            for _ in 0..80 {
                let file = service.keep(&Account::ANONYMOUS, "1").await;
                let mut bytes = service
                    .file_store
                    .read(&file, 0..1)
                    .await
                    .expect("nobody else removes what is ours");
                assert_eq!(bytes.next().await.unwrap().unwrap(), "1");
                assert!(
                    service
                        .file_store
                        .remove(&Account::ANONYMOUS, &file.id)
                        .await
                        .unwrap()
                );
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(service.on_disk().len(), 0);
}

#[tokio::test]
async fn weights_stay_when_the_job_is_forgotten_and_go_with_their_version() {
    let service = service().await;
    let given = service.give("j", "0123456789").await;
    let weights = service
        .file_store
        .keep_weights(&ann(), &given, "me/mine:1")
        .await
        .unwrap();
    let again = service
        .file_store
        .keep_weights(&ann(), &given, "me/mine:1")
        .await
        .unwrap();
    assert_eq!(
        (weights.id.as_str(), weights.sha256.as_str()),
        (again.id.as_str(), given.sha256.as_str())
    );
    let later = Timestamp::now() + Duration::from_secs(10_000);
    service.file_store.sweep(later, &*service.store).await;
    assert!(service.file_store.find(&ann(), &given.id).is_none() && service.on_disk().len() == 1);
    assert!(
        service.file_store.list(&ann()).is_empty(),
        "nobody has left them"
    );
    assert!(
        service.file_store.has_room(&ann(), 2).is_ok()
            && service.file_store.has_room(&ann(), 3).is_err(),
        "they count all the same"
    );
    assert!(
        !service
            .file_store
            .remove(&ann(), &weights.id)
            .await
            .unwrap()
    );
    assert!(
        service
            .file_store
            .keep_weights(&ann(), &given, "me/mine:2")
            .await
            .is_err(),
        "the file is gone"
    );

    let file_store = service.again().await;
    file_store
        .copy(&weights, &service.folder.path().join("copy"))
        .await
        .unwrap();
    file_store
        .remove_weights(|of| of == "me/mine:2")
        .await
        .unwrap();
    assert_eq!(service.on_disk().len(), 1);
    file_store
        .remove_weights(|of| of == "me/mine:1")
        .await
        .unwrap();
    assert_eq!(service.on_disk().len(), 0);
}

#[tokio::test]
async fn a_name_in_an_output_is_a_file_of_its_own_job_only() {
    let service = service().await;
    let (given, left) = (
        service.give("j", "y").await,
        service.keep(&ann(), "x").await,
    );
    let named = |job: &str, text: &str| {
        service
            .file_store
            .named(&ann(), &id(job), text)
            .map(|file| file.id.clone())
    };
    assert_eq!(named("j", &name_of(&given)), Some(given.id.clone()));
    assert_eq!(named("k", &name_of(&given)), None);
    assert_eq!(
        named("j", &format!("https://h/v1/files/{}", left.id)),
        Some(left.id.clone())
    );
    assert_eq!(named("j", "w.bin"), None);
}
