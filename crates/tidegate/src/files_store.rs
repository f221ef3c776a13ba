//! The storage of files: the data directory, or the location of `--files-store`.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use tidegate_core::JobId;
use tidegate_core::blobs::Blobs;
use tidegate_core::store::Documents;
use tidegate_store::{FolderBlobs, S3Blobs};

use crate::store_ports::FilesFolder;

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
    pub(crate) spool: PathBuf,
}

/// Opens the location. In a shared one, the server uses a subfolder of its own: at startup it deletes
/// files that no document mentions, and they must not belong to another server. Files for a bucket are in
/// the data directory until they are complete.
pub(crate) async fn open(
    url: Option<&FilesStoreUrl>,
    folder: &FilesFolder,
    documents: &dyn Documents,
) -> anyhow::Result<BlobLocation> {
    let own = match folder {
        FilesFolder::Own(folder) => folder.clone(),
        FilesFolder::Shared(folder) => folder.join(subfolder(documents).await?),
    };
    match url {
        None => in_folder(own).context("failed to open the folder for files in the data directory"),
        Some(FilesStoreUrl::Folder(folder)) => in_folder(folder.join(subfolder(documents).await?))
            .context("failed to open the folder of --files-store"),
        Some(FilesStoreUrl::Bucket { bucket, prefix }) => {
            let client = tidegate_net::unguarded_client()
                .context("failed to create the HTTP client for the bucket of --files-store")?;
            let root = format!("{prefix}/{}", subfolder(documents).await?);
            let spool = in_folder(own)
                .context("failed to open the folder for files in the data directory")?
                .spool;
            Ok(BlobLocation {
                blobs: Arc::new(S3Blobs::connect(bucket, &root, client)?),
                spool,
            })
        }
    }
}

fn in_folder(folder: PathBuf) -> anyhow::Result<BlobLocation> {
    Ok(BlobLocation {
        blobs: Arc::new(FolderBlobs::open(folder.clone())?),
        spool: folder,
    })
}

/// The name of the subfolder of this server; it is stored in the data directory.
async fn subfolder(documents: &dyn Documents) -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system provides random bytes");
    let name = format!(
        "tidegate-{}",
        JobId::from_random(u128::from_le_bytes(bytes))
    );
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
