use std::os::unix::fs::PermissionsExt;

use tidegate_store::{Options, Sqlite};

use super::*;

struct Desk {
    uploads: Arc<Uploads>,
    folder: tempfile::TempDir,
}

async fn desk() -> Desk {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(folder.path(), &Options::default()).unwrap());
    let uploads = Uploads::open(folder.path().join("files"), store).await.unwrap();
    Desk { uploads, folder }
}

impl Desk {
    async fn keep(&self, account: &Account, body: &str) -> Arc<Uploaded> {
        let mut upload = self.uploads.receive(10).await.unwrap();
        upload.write(body.as_bytes()).await.unwrap();
        let metadata = RawValue::from_string("{}".to_owned()).unwrap();
        self.uploads.keep(account, upload, "a.txt".to_owned(), "text/plain".to_owned(), metadata).await.unwrap()
    }

    fn on_disk(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.folder.path().join("files")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

fn ann() -> Account {
    Account::parse("ann").unwrap()
}

#[tokio::test]
async fn one_content_is_kept_once_and_as_long_as_somebody_has_it() {
    let desk = desk().await;
    let (one, other) = (desk.keep(&ann(), "hello").await, desk.keep(&Account::ANONYMOUS, "hello").await);
    assert_eq!((one.md5.as_str(), one.size), ("5d41402abc4b2a76b9719d911017c592", 5));
    assert_eq!(one.sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert_eq!(desk.on_disk(), [desk.uploads.path_of(&one)]);
    assert_eq!(desk.on_disk()[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(desk.uploads.get(&ann(), &other.id).is_none() && !desk.uploads.remove(&ann(), &other.id).await.unwrap());
    assert!(desk.uploads.remove(&ann(), &one.id).await.unwrap() && !desk.uploads.remove(&ann(), &one.id).await.unwrap());
    assert_eq!(desk.on_disk().len(), 1);
    assert!(desk.uploads.remove(&Account::ANONYMOUS, &other.id).await.unwrap());
    assert_eq!(desk.on_disk().len(), 0);
}

#[tokio::test]
async fn what_is_too_large_or_given_up_leaves_nothing() {
    let desk = desk().await;
    let mut upload = desk.uploads.receive(10).await.unwrap();
    upload.write(b"0123456789").await.unwrap();
    assert!(matches!(upload.write(b"0").await, Err(UploadError::TooLarge(10))));
    drop(upload);
    assert_eq!(desk.on_disk().len(), 0);
}

#[tokio::test]
async fn files_are_found_by_their_addresses_whatever_the_host() {
    let desk = desk().await;
    let file = desk.keep(&ann(), "x").await;
    for (url, account, found) in [
        (format!("http://127.0.0.1:5000/v1/files/{}", file.id), ann(), true),
        (format!("https://h/api/v1/files/{}/download?owner=ann", file.id), ann(), true),
        (format!("https://h/v1/files/{}", file.id), Account::ANONYMOUS, false),
        (format!("https://h/v1/files/{}/x", file.id), ann(), false),
        (format!("https://h/files/{}", file.id), ann(), false),
        ("https://h/v1/files/".to_owned(), ann(), false),
    ] {
        assert_eq!(desk.uploads.find(&account, &Url::parse(&url).unwrap()).is_some(), found, "{url}");
    }
}

#[tokio::test]
async fn after_a_day_a_file_is_gone_and_a_restart_keeps_the_others() {
    let Desk { uploads, folder } = desk().await;
    let desk = Desk { uploads, folder };
    let file = desk.keep(&ann(), "x").await;
    std::fs::write(desk.folder.path().join("files/left.part"), "half").unwrap();
    let again = Uploads::open(desk.folder.path().join("files"), Arc::clone(&desk.uploads.documents)).await.unwrap();
    assert_eq!(desk.on_disk(), [desk.uploads.path_of(&file)]);
    again.sweep(file.expires_at.checked_sub(Duration::from_secs(1)).unwrap()).await;
    assert_eq!(again.list(&ann()).len(), 1);
    again.sweep(file.expires_at).await;
    assert_eq!((again.list(&ann()).len(), desk.on_disk().len()), (0, 0));
}
