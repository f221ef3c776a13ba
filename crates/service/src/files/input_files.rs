//! Fetches the files of an input into the job's folder.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use data_url::DataUrl;
use data_url::forgiving_base64::DecodeError;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tidegate_core::{Account, chain};
use tidegate_net::Url;
use tokio::io::AsyncWriteExt;

use super::{Files, InputDownloadError, InputDownloads, StoredInputs, file_name};
use crate::files::store::{FileStoreError, file_id_in};
use crate::run_blocking::run_blocking_if_large;

/// The number of files of one job that are fetched concurrently.
const MAX_CONCURRENT_FETCHES: usize = 8;

/// The job whose input it is.
#[derive(Clone, Copy)]
pub(crate) struct InputOwner<'a> {
    pub(crate) account: &'a Account,
    /// Provides stored files in place of the file store.
    pub(crate) downloads: Option<&'a dyn InputDownloads>,
}

/// Why a file of the input could not be fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("Input validation error: `{pointer}`: {reason}")]
    Unusable { pointer: String, reason: String },
    #[error(
        "the server has no space left for the file of `{pointer}`; try again later or contact the operator"
    )]
    DiskFull { pointer: String },
}

impl Files {
    /// Checks that the account can use the file that `text` names. `stored` are the stored files of the
    /// account. Returns its size if it is known already: of a data URI or a stored file. For other URLs it
    /// is 0 until the file is fetched.
    pub(crate) fn check(&self, stored: &StoredInputs, text: &str) -> Result<u64, String> {
        match scheme_of(text).as_deref() {
            Some("data") => self.check_data_uri(text),
            Some("http" | "https") => match stored.find(text) {
                Some(file) if file.size > self.net.max_file() => Err(format!(
                    "the file is larger than the {} bytes of `--max-file`",
                    self.net.max_file()
                )),
                Some(file) => Ok(file.size),
                None => match self.net.check(text) {
                    Ok(_) => Ok(0),
                    Err(error) => Err(format!("cannot use the URL: {error}")),
                },
            },
            Some(_) | None => Err("not an http or https URL or a data URI; \
                to send a local file, use `tidegate predict … -i name=@file`"
                .to_owned()),
        }
    }

    /// Decodes a data URI to count its bytes, without storing them.
    fn check_data_uri(&self, text: &str) -> Result<u64, String> {
        let data =
            DataUrl::process(text).map_err(|error| format!("cannot read the data URI: {error}"))?;
        let (limit, mut bytes) = (self.net.max_file(), 0u64);
        let counted = data.decode(|part| {
            bytes += part.len() as u64;
            if bytes > limit { Err(()) } else { Ok(()) }
        });
        match counted {
            Ok(_) => Ok(bytes),
            Err(DecodeError::WriteError(())) => Err(format!(
                "the data URI is larger than the {limit} bytes of `--max-file`"
            )),
            Err(DecodeError::InvalidBase64(error)) => {
                Err(format!("the data URI is not base64: {error}"))
            }
        }
    }

    /// Fetches every address into `folder`; returns the local paths by JSON pointer.
    pub(crate) async fn fetch(
        &self,
        job: InputOwner<'_>,
        addresses: Vec<(String, String)>,
        folder: &Path,
    ) -> Result<BTreeMap<String, PathBuf>, FetchError> {
        let mut fetches = Vec::new();
        for (i, (pointer, address)) in addresses.into_iter().enumerate() {
            let folder = folder.join(format!("input-{i}"));
            let fetch = async move {
                let path = self.fetch_one(job, &pointer, &address, folder).await?;
                Ok((pointer, path))
            };
            fetches.push(fetch.boxed());
        }
        stream::iter(fetches)
            .buffer_unordered(MAX_CONCURRENT_FETCHES)
            .try_collect()
            .await
    }

    async fn fetch_one(
        &self,
        job: InputOwner<'_>,
        pointer: &str,
        address: &str,
        folder: PathBuf,
    ) -> Result<PathBuf, FetchError> {
        let pointer = pointer.trim_start_matches('/').to_owned();
        let unusable = |reason: String| FetchError::Unusable {
            pointer: pointer.clone(),
            reason,
        };
        let unwritable = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::StorageFull => FetchError::DiskFull {
                pointer: pointer.clone(),
            },
            _ => FetchError::Unusable {
                pointer: pointer.clone(),
                reason: format!("cannot write the file: {error}"),
            },
        };
        create_private_folder(&folder).map_err(unwritable)?;
        if scheme_of(address).as_deref() == Some("data") {
            let data = DataUrl::process(address)
                .map_err(|error| unusable(format!("cannot read the data URI: {error}")))?;
            let mime = data.mime_type();
            let path = folder.join(file_name::from_mime(&format!(
                "{}/{}",
                mime.type_, mime.subtype
            )));
            let decoded = run_blocking_if_large(address.len(), || data.decode_to_vec());
            let (body, _) = decoded
                .map_err(|error| unusable(format!("the data URI is not base64: {error}")))?;
            write_private(&path, &body).await.map_err(unwritable)?;
            return Ok(path);
        }
        match self.fetch_stored(job, address, &folder).await {
            Ok(Some(path)) => return Ok(path),
            Ok(None) => {}
            Err(InputDownloadError::DiskFull) => return Err(FetchError::DiskFull { pointer }),
            Err(InputDownloadError::Failed(reason)) => return Err(unusable(reason)),
        }
        let url = self
            .net
            .check(address)
            .map_err(|error| unusable(format!("cannot use the URL: {error}")))?;
        let path = folder.join(file_name::from_url(&url));
        match self.net.download(&url, &path).await {
            Ok(()) => Ok(path),
            Err(error) if error.is_disk_full() => Err(FetchError::DiskFull { pointer }),
            Err(error) => Err(unusable(chain(&error).to_string())),
        }
    }
}

impl Files {
    /// The copy of a stored file, if the address is that of a stored file of the account. It is copied, not
    /// linked: the model may write to its inputs, and its user becomes their owner.
    async fn fetch_stored(
        &self,
        job: InputOwner<'_>,
        address: &str,
        folder: &Path,
    ) -> Result<Option<PathBuf>, InputDownloadError> {
        let failed = |error: FileStoreError| match error {
            FileStoreError::NoSpace => InputDownloadError::DiskFull,
            error => InputDownloadError::Failed(error.client_message()),
        };
        let url = Url::parse(address).ok();
        let Some(id) = url.as_ref().and_then(file_id_in) else {
            return Ok(None);
        };
        if let Some(downloads) = job.downloads {
            return downloads.download(id, folder).await;
        }
        let Some(file_store) = self.file_store.as_deref() else {
            return Ok(None);
        };
        let found = file_store.find(job.account, id).await;
        let Some(file) = found.map_err(|error| failed(error.into()))? else {
            return Ok(None);
        };
        let path = folder.join(file_name::from_text(&file.name));
        file_store.copy(&file, &path).await.map_err(failed)?;
        Ok(Some(path))
    }
}

fn scheme_of(text: &str) -> Option<String> {
    // The supported schemes are at most 5 bytes long; the text may be large.
    let head = text.as_bytes().get(..text.len().min(6))?;
    let colon = head.iter().position(|byte| *byte == b':')?;
    Some(text.get(..colon)?.to_ascii_lowercase())
}

fn create_private_folder(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

async fn write_private(path: &Path, body: &[u8]) -> std::io::Result<()> {
    let mut file = tokio::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .await?;
    file.write_all(body).await?;
    file.flush().await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidegate_net::{Client, Config};

    use super::*;

    fn files() -> Files {
        Files {
            net: Arc::new(Client::new(Config {
                max_file: 10,
                ..Config::default()
            })),
            upload_url: None,
            owner: None,
            file_store: None,
        }
    }

    #[test]
    fn urls_and_data_uris_are_accepted() {
        for (text, bytes) in [
            ("https://example.com/a.png", 0),
            ("HTTP://example.com/a.png", 0),
            ("data:,hello%20you", 9),
            ("data:text/plain;base64,aGVs\nbG8=", 5),
            ("DATA:;base64,", 0),
        ] {
            assert_eq!(
                files().check(&StoredInputs::default(), text),
                Ok(bytes),
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        for (text, expected) in [
            ("/etc/passwd", "-i name=@file"),
            ("../x", "-i name=@file"),
            ("", "-i name=@file"),
            ("file:///etc/passwd", "-i name=@file"),
            (" https://example.com/", "-i name=@file"),
            ("gopher://example.com/", "-i name=@file"),
            ("http://127.0.0.1/x", "not a public address"),
            ("http://169.254.169.254/latest", "not a public address"),
            ("https://localhost/x", "not a public address"),
            ("http://", "cannot use"),
            ("data:nocomma", "cannot read"),
            ("data:text/plain;base64,!!!", "not base64"),
            ("data:,12345678901", "--max-file"),
            ("data:;base64,MTIzNDU2Nzg5MDE=", "--max-file"),
        ] {
            let error = files().check(&StoredInputs::default(), text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
