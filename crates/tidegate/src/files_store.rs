//! Where the bytes of files are kept: in the data folder, or where `--files-store` says.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context;
use tidegate_core::JobId;
use tidegate_core::blobs::Blobs;
use tidegate_core::store::Documents;
use tidegate_store::{FolderBlobs, S3Blobs};

use crate::data_dir::OpenDataDir;

/// What a bucket is opened with; the model must not have it, for all files of all accounts are in there.
pub(crate) const SECRETS: [&str; 3] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
];
/// The folder in the data folder. Files for a bucket are written there until they have come.
const FOLDER: &str = "files";
/// The document with the name of our own part of a place that others may use too.
const SHELF: &str = "files-store";
const NAME: &str = "name";

/// What the command line says about the place of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FilesStoreUrl {
    /// Below a prefix of a bucket.
    Bucket { bucket: String, prefix: String },
    /// In a folder.
    Folder(PathBuf),
}

impl FromStr for FilesStoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hint = "give `s3://BUCKET`, `s3://BUCKET/PREFIX` or `file:///FOLDER`";
        match text.split_once("://") {
            Some(("file", folder)) if folder.starts_with('/') => Ok(Self::Folder(folder.into())),
            Some(("file", _)) => Err(format!("the folder must begin with `/`; {hint}")),
            Some(("s3", place)) => {
                let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
                if bucket.is_empty() || bucket.contains(['?', '#', '@']) {
                    return Err(format!("it names no bucket; {hint}"));
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

/// A place that is open.
pub(crate) struct BlobLocation {
    pub(crate) blobs: Arc<dyn Blobs>,
    /// Where files are written until they have come.
    pub(crate) spool: PathBuf,
}

/// Opens the place. In one that others may use too, what belongs to this data folder is kept apart: what belongs to
/// nothing is removed at the start, and that must not be somebody else's.
pub(crate) async fn open(
    said: Option<&FilesStoreUrl>,
    data: &OpenDataDir,
) -> anyhow::Result<BlobLocation> {
    let own = data.folder.join(FOLDER);
    match said {
        None => in_folder(own).context("the folder `files` in the data folder cannot be used"),
        Some(FilesStoreUrl::Folder(folder)) => in_folder(folder.join(name(&*data.store).await?))
            .context("the folder of --files-store cannot be used"),
        Some(FilesStoreUrl::Bucket { bucket, prefix }) => {
            let client = tidegate_net::unguarded_client()
                .context("there is no way out to the bucket of --files-store")?;
            let root = format!("{prefix}/{}", name(&*data.store).await?);
            let spool = in_folder(own)
                .context("the folder `files` in the data folder cannot be used")?
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

/// What this data folder calls its part of a place; the same after every restart.
async fn name(documents: &dyn Documents) -> anyhow::Result<String> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the system gives random bits");
    let made = format!("tidegate-{}", JobId::from_random(u128::from_le_bytes(bits)));
    let kept = documents
        .put_new(SHELF, NAME, serde_json::to_vec(&made)?.into())
        .await
        .context("the name of the place of files cannot be kept")?;
    serde_json::from_slice(&kept).context("the name of the place of files cannot be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
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
