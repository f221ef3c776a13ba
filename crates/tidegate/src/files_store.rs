//! The storage of files: the data directory, or the location of `--files-store`.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use tidegate_core::JobId;
use tidegate_core::blobs::Blobs;
use tidegate_core::store::Documents;
use tidegate_service::Spool;
use tidegate_store::{FolderBlobs, S3Blobs};

use crate::store_ports::FilesFolder;
use crate::usage_error::UsageError;

/// The credentials of the bucket. They are hidden from the model, because the bucket has the files of
/// all accounts.
pub(crate) const SECRETS: [&str; 3] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];
/// The document with the name of the subfolder of this server in a shared location.
const NAMESPACE: &str = "files-store";
const NAME: &str = "name";
/// The document with the name of the file by which the processes of a cluster recognize the folder.
const MARKER: &str = "marker";

/// The value of `--files-store`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FilesStoreUrl {
    /// A prefix of a bucket.
    Bucket { bucket: String, prefix: String },
    /// A folder.
    Folder(PathBuf),
}

impl FromStr for FilesStoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = "give `s3://BUCKET`, `s3://BUCKET/PREFIX` or `file:///FOLDER`";
        match text.split_once("://") {
            Some(("file", folder)) if folder.starts_with('/') => Ok(Self::Folder(folder.into())),
            Some(("file", _)) => Err(format!("the folder must start with `/`; {hint}")),
            Some(("s3", location)) => {
                let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
                if bucket.is_empty() || bucket.contains(['?', '#', '@']) {
                    return Err(format!("the bucket is missing or invalid; {hint}"));
                }
                Ok(Self::Bucket {
                    bucket: bucket.to_owned(),
                    prefix: prefix.trim_matches('/').to_owned(),
                })
            }
            Some(_) | None => Err(hint.to_owned()),
        }
    }
}

/// An open location.
pub(crate) struct BlobLocation {
    pub(crate) blobs: Arc<dyn Blobs>,
    /// The folder for files that are not complete.
    pub(crate) spool: Spool,
}

/// The processes that use a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocationUsers {
    /// This one.
    OneProcess,
    /// The API processes of a cluster. A folder must be the same for all of them.
    Cluster,
}

/// Opens the location. In a shared one, the server uses a subfolder of its own: it deletes files that no
/// document mentions, and they must not belong to another server. The API processes of a cluster are one
/// server. Files for a bucket are in the data directory until they are complete.
pub(crate) async fn open(
    url: Option<&FilesStoreUrl>,
    folder: &FilesFolder,
    documents: &dyn Documents,
    users: LocationUsers,
) -> anyhow::Result<BlobLocation> {
    let own = match folder {
        FilesFolder::Own(folder) => folder.clone(),
        FilesFolder::Shared(folder) => folder.join(subfolder(documents).await?),
    };
    match url {
        None => {
            let location = in_folder(own, users)
                .context("failed to open the folder for files in the data directory")?;
            check_shared(location, documents, users).await
        }
        Some(FilesStoreUrl::Folder(folder)) => {
            let folder = folder.join(subfolder(documents).await?);
            let location =
                in_folder(folder, users).context("failed to open the folder of --files-store")?;
            check_shared(location, documents, users).await
        }
        Some(FilesStoreUrl::Bucket { bucket, prefix }) => {
            let root = format!("{prefix}/{}", subfolder(documents).await?);
            let spool = in_folder(own, users)
                .context("failed to open the folder for files in the data directory")?
                .spool;
            Ok(BlobLocation {
                blobs: Arc::new(connect(bucket, &root)?),
                spool,
            })
        }
    }
}

/// Checks that a location can be used, without leaving anything in it.
pub(crate) async fn check(url: &FilesStoreUrl) -> anyhow::Result<()> {
    match url {
        FilesStoreUrl::Folder(folder) => {
            FolderBlobs::open(folder.clone())
                .context("failed to open the folder of --files-store")?;
        }
        FilesStoreUrl::Bucket { bucket, prefix } => {
            // A list of all objects below a new prefix is short.
            let root = format!("{prefix}/tidegate-{}", random_id());
            let blobs = connect(bucket, &root)?;
            let listed = blobs.names().await;
            listed.context("failed to use the bucket of --files-store")?;
        }
    }
    Ok(())
}

fn connect(bucket: &str, root: &str) -> anyhow::Result<S3Blobs> {
    let client = tidegate_net::unguarded_client()
        .context("failed to create the HTTP client for the bucket of --files-store")?;
    Ok(S3Blobs::connect(bucket, root, client)?)
}

fn in_folder(folder: PathBuf, users: LocationUsers) -> anyhow::Result<BlobLocation> {
    Ok(BlobLocation {
        blobs: Arc::new(FolderBlobs::open(folder.clone())?),
        spool: match users {
            LocationUsers::OneProcess => Spool::Own(folder),
            LocationUsers::Cluster => Spool::Shared(folder),
        },
    })
}

/// Checks that the API processes of a cluster use the same folder. The first one creates a file with a
/// random name in it and stores the name in the database; the others look for the file.
async fn check_shared(
    location: BlobLocation,
    documents: &dyn Documents,
    users: LocationUsers,
) -> anyhow::Result<BlobLocation> {
    if users == LocationUsers::OneProcess {
        return Ok(location);
    }
    const FAILED: &str = "failed to check whether the folder for files is shared";
    let folder = location.spool.folder();
    let marker = match documents.fetch(NAMESPACE, MARKER).await.context(FAILED)? {
        Some(stored) => serde_json::from_slice(&stored).context(FAILED)?,
        None => create_marker(folder, documents).await.context(FAILED)?,
    };
    if folder.join(&marker).exists() {
        return Ok(location);
    }
    Err(UsageError::new(format!(
        "the folder `{}` is not the one in which the other API processes of this cluster store files: it has no file `{marker}`",
        folder.display()
    ))
    .hint(format!(
        "mount the same file system on every machine and give it with --data-dir, or use --files-store s3://BUCKET; \
         if the files are lost and this is the new folder, run `touch {}`",
        folder.join(&marker).display()
    ))
    .into())
}

/// Creates the file before its name is stored, so that every process that reads the name finds it. Returns
/// the name that is stored.
async fn create_marker(folder: &Path, documents: &dyn Documents) -> anyhow::Result<String> {
    let name = format!("shared-by-{}", random_id());
    let path = folder.join(&name);
    std::fs::File::create_new(&path)?.sync_all()?;
    let stored = documents
        .put_new(NAMESPACE, MARKER, serde_json::to_vec(&name)?.into())
        .await?;
    let stored: String = serde_json::from_slice(&stored)?;
    if stored != name {
        std::fs::remove_file(path)?;
    }
    Ok(stored)
}

fn random_id() -> JobId {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system provides random bytes");
    JobId::from_random(u128::from_le_bytes(bytes))
}

/// The name of the subfolder of this server; it is stored in the data directory.
async fn subfolder(documents: &dyn Documents) -> anyhow::Result<String> {
    let name = format!("tidegate-{}", random_id());
    let stored = documents
        .put_new(NAMESPACE, NAME, serde_json::to_vec(&name)?.into())
        .await
        .context("failed to store the name of the files folder")?;
    serde_json::from_slice(&stored).context("failed to read the name of the files folder")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let bucket = |bucket: &str, prefix: &str| {
            Ok(FilesStoreUrl::Bucket {
                bucket: bucket.to_owned(),
                prefix: prefix.to_owned(),
            })
        };
        assert_eq!("s3://b".parse(), bucket("b", ""));
        assert_eq!("s3://b/".parse(), bucket("b", ""));
        assert_eq!("s3://b/a/c/".parse(), bucket("b", "a/c"));
        assert_eq!(
            "file:///srv/files".parse(),
            Ok(FilesStoreUrl::Folder("/srv/files".into()))
        );
        for bad in [
            "",
            "b",
            "/srv/files",
            "s3://",
            "s3:///a",
            "file://srv",
            "https://b.example/",
            "s3://key:secret@b",
        ] {
            assert!(bad.parse::<FilesStoreUrl>().is_err(), "{bad}");
        }
    }
}
