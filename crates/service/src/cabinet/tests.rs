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
    cabinet: Arc<FileStore>,
    store: Arc<SqliteStore>,
    folder: tempfile::TempDir,
}

async fn desk() -> Desk {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(folder.path(), &SqliteOptions::default()).unwrap());
    let cabinet = open(folder.path(), &store).await;
    Desk {
        cabinet,
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
        let mut incoming = self.cabinet.receive(0, 10).await.unwrap();
        incoming.write(body.as_bytes()).await.unwrap();
        incoming
    }

    async fn keep(&self, account: &Account, body: &str) -> Arc<StoredFile> {
        self.cabinet
            .keep(account, self.incoming(body).await, label())
            .await
            .unwrap()
    }

    async fn give(&self, job: &str, body: &str) -> Arc<StoredFile> {
        self.cabinet
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
    let desk = desk().await;
    let (one, other) = (
        desk.keep(&ann(), "hello").await,
        desk.keep(&Account::ANONYMOUS, "hello").await,
    );
    assert_eq!(
        (one.md5.as_str(), one.size),
        ("5d41402abc4b2a76b9719d911017c592", 5)
    );
    assert_eq!(
        one.sha256,
        "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    );
    assert_eq!(desk.on_disk(), [one.sha256.as_str()]);
    let path = desk.folder.path().join("files").join(&one.sha256);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        desk.cabinet.get(&ann(), &other.id).is_none()
            && !desk.cabinet.remove(&ann(), &other.id).await.unwrap()
    );
    assert!(
        desk.cabinet.remove(&ann(), &one.id).await.unwrap()
            && !desk.cabinet.remove(&ann(), &one.id).await.unwrap()
    );
    assert_eq!(desk.on_disk().len(), 1);
    assert!(
        desk.cabinet
            .remove(&Account::ANONYMOUS, &other.id)
            .await
            .unwrap()
    );
    assert_eq!(desk.on_disk().len(), 0);
}

#[tokio::test]
async fn what_is_too_large_or_given_up_leaves_nothing() {
    let desk = desk().await;
    let mut incoming = desk.cabinet.receive(0, 10).await.unwrap();
    incoming.write(b"0123456789").await.unwrap();
    assert!(matches!(
        incoming.write(b"0").await,
        Err(FileStoreError::TooLarge(10))
    ));
    drop(incoming);
    assert_eq!(desk.on_disk().len(), 0);
}

#[tokio::test]
async fn what_would_fill_the_disk_is_not_begun() {
    let desk = desk().await;
    assert!(matches!(
        desk.cabinet.receive(u64::MAX, u64::MAX).await,
        Err(FileStoreError::NoSpace)
    ));
    assert_eq!(desk.on_disk().len(), 0);
}

#[tokio::test]
async fn files_are_found_by_their_addresses_whatever_the_host() {
    let desk = desk().await;
    let (file, output) = (desk.keep(&ann(), "x").await, desk.give("j", "y").await);
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
            desk.cabinet
                .find_by_address(&account, &Url::parse(&url).unwrap())
                .is_some(),
            found,
            "{url}"
        );
    }
}

#[tokio::test]
async fn after_its_time_a_file_is_gone_and_a_restart_keeps_the_others() {
    let desk = desk().await;
    let file = desk.keep(&ann(), "x").await;
    std::fs::write(desk.folder.path().join("files/left.part"), "half").unwrap();
    std::fs::write(
        desk.folder.path().join("files").join("0".repeat(64)),
        "of nothing",
    )
    .unwrap();
    let again = desk.again().await;
    let expires_at = file.expires_at.unwrap();
    again
        .sweep(
            expires_at.checked_sub(Duration::from_secs(1)).unwrap(),
            &*desk.store,
        )
        .await;
    assert_eq!(
        (again.list(&ann()).len(), desk.on_disk()),
        (1, vec![file.sha256.clone()])
    );
    again.sweep(expires_at, &*desk.store).await;
    assert_eq!((again.list(&ann()).len(), desk.on_disk().len()), (0, 0));
    assert_eq!(desk.again().await.list(&ann()).len(), 0);
}

#[tokio::test]
async fn what_a_job_gave_goes_with_the_job() {
    let desk = desk().await;
    let now = Timestamp::now();
    desk.job("j", now).await;
    let file = desk.give("j", "x").await;
    let later = now.checked_add(Duration::from_secs(3600)).unwrap();
    let again = desk.again().await;
    again.sweep(later, &*desk.store).await;
    assert!(again.find(&ann(), &file.id).is_some(), "the job is there");
    assert!(
        again.get(&ann(), &file.id).is_none() && again.list(&ann()).is_empty(),
        "it is not among those of callers"
    );
    assert!(!again.remove(&ann(), &file.id).await.unwrap());

    assert_eq!(desk.store.forget(later, 10).await.unwrap(), 1);
    again.sweep(now, &*desk.store).await;
    assert!(
        again.find(&ann(), &file.id).is_some(),
        "too young for its job to be forgotten"
    );
    again.sweep(later, &*desk.store).await;
    assert!(again.find(&ann(), &file.id).is_none() && desk.on_disk().is_empty());
}

#[tokio::test]
async fn names_of_files_become_addresses_and_nothing_else_does() {
    let desk = desk().await;
    let (one, other, upload) = (
        desk.give("j", "1").await,
        desk.give("k", "2").await,
        desk.keep(&ann(), "3").await,
    );
    let told = |json: String| {
        let told = desk.cabinet.told(&ann(), &id("j"), &json.into(), |file| {
            format!("http://h/\"{}", file.size)
        });
        String::from_utf8(told.to_vec()).unwrap()
    };
    let name = told::name_of(&one);
    assert_eq!(
        told(format!(r#"{{"a":["{name}","{name}"],"b":1}}"#)),
        r#"{"a":["http://h/\"1","http://h/\"1"],"b":1}"#
    );
    for same in [
        format!(r#""{name} ""#),
        format!(r#""a {name}""#),
        format!(r#""\"{name}\"""#),
        format!(r#""{}""#, told::name_of(&other)),
        format!(r#""{}""#, told::name_of(&upload)),
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
    let desk = desk().await;
    desk.give("j", "0123456789").await;
    let first = desk.keep(&ann(), "0123456").await;
    let refused = desk
        .cabinet
        .keep(&ann(), desk.incoming("012345").await, label())
        .await;
    assert!(matches!(
        refused,
        Err(FileStoreError::Quota { used: 7, max: 12 })
    ));
    assert!(desk.cabinet.has_room(&ann(), 6).is_err() && desk.cabinet.has_room(&ann(), 5).is_ok());
    desk.keep(&Account::ANONYMOUS, "012345").await;
    assert_eq!(
        (desk.cabinet.list(&ann()).len(), desk.on_disk().len()),
        (1, 3),
        "nothing is left of what was refused"
    );
    desk.cabinet.remove(&ann(), &first.id).await.unwrap();
    desk.keep(&ann(), "012345").await;
    desk.keep(&ann(), "012345").await;
}

#[tokio::test]
async fn what_comes_at_once_counts_together() {
    let desk = desk().await;
    let place = desk.cabinet.reserve(&ann(), 10).unwrap();
    assert!(
        desk.cabinet.has_room(&ann(), 3).is_err()
            && desk.cabinet.has_room(&Account::ANONYMOUS, 3).is_ok()
    );
    drop(place);
    assert!(desk.cabinet.has_room(&ann(), 12).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_has_a_content_has_its_bytes_however_many_come_and_go() {
    let desk = Arc::new(desk().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let desk = Arc::clone(&desk);
        tasks.spawn(async move {
            for _ in 0..80 {
                let file = desk.keep(&Account::ANONYMOUS, "1").await;
                let mut bytes = desk
                    .cabinet
                    .read(&file, 0..1)
                    .await
                    .expect("nobody else removes what is ours");
                assert_eq!(bytes.next().await.unwrap().unwrap(), "1");
                assert!(
                    desk.cabinet
                        .remove(&Account::ANONYMOUS, &file.id)
                        .await
                        .unwrap()
                );
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(desk.on_disk().len(), 0);
}

#[tokio::test]
async fn weights_stay_when_the_job_is_forgotten_and_go_with_their_version() {
    let desk = desk().await;
    let given = desk.give("j", "0123456789").await;
    let weights = desk
        .cabinet
        .keep_weights(&ann(), &given, "me/mine:1")
        .await
        .unwrap();
    let again = desk
        .cabinet
        .keep_weights(&ann(), &given, "me/mine:1")
        .await
        .unwrap();
    assert_eq!(
        (weights.id.as_str(), weights.sha256.as_str()),
        (again.id.as_str(), given.sha256.as_str())
    );
    let later = Timestamp::now() + Duration::from_secs(10_000);
    desk.cabinet.sweep(later, &*desk.store).await;
    assert!(desk.cabinet.find(&ann(), &given.id).is_none() && desk.on_disk().len() == 1);
    assert!(desk.cabinet.list(&ann()).is_empty(), "nobody has left them");
    assert!(
        desk.cabinet.has_room(&ann(), 2).is_ok() && desk.cabinet.has_room(&ann(), 3).is_err(),
        "they count all the same"
    );
    assert!(!desk.cabinet.remove(&ann(), &weights.id).await.unwrap());
    assert!(
        desk.cabinet
            .keep_weights(&ann(), &given, "me/mine:2")
            .await
            .is_err(),
        "the file is gone"
    );

    let cabinet = desk.again().await;
    cabinet
        .copy(&weights, &desk.folder.path().join("copy"))
        .await
        .unwrap();
    cabinet
        .remove_weights(|of| of == "me/mine:2")
        .await
        .unwrap();
    assert_eq!(desk.on_disk().len(), 1);
    cabinet
        .remove_weights(|of| of == "me/mine:1")
        .await
        .unwrap();
    assert_eq!(desk.on_disk().len(), 0);
}

#[tokio::test]
async fn a_name_in_an_output_is_a_file_of_its_own_job_only() {
    let desk = desk().await;
    let (given, left) = (desk.give("j", "y").await, desk.keep(&ann(), "x").await);
    let named = |job: &str, text: &str| {
        desk.cabinet
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
