//! Addresses in an input become files in the job's own folder.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use data_url::DataUrl;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use tidegate_core::chain;
use tidegate_net::check_address;

use super::{Files, name};
use crate::heavy::heavy;

/// How many files of one job are fetched at once.
const AT_ONCE: usize = 8;

/// A file of the input could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("`{pointer}`: the data URI cannot be read: {reason}")]
    DataUri { pointer: String, reason: String },
    #[error("`{pointer}`: the address cannot be used: {reason}")]
    Address { pointer: String, reason: String },
    #[error("`{pointer}`: {reason}")]
    Download { pointer: String, reason: String },
    #[error("`{pointer}`: could not write the file: {reason}")]
    Write { pointer: String, reason: String },
}

impl Files {
    /// Fetches every address into `folder`; gives their places by JSON pointer.
    pub(crate) async fn fetch(&self, addresses: Vec<(String, String)>, folder: &Path) -> Result<BTreeMap<String, PathBuf>, FetchError> {
        let mut fetches = Vec::new();
        for (i, (pointer, address)) in addresses.into_iter().enumerate() {
            let place = folder.join(format!("input-{i}"));
            let fetch = async move {
                let path = self.fetch_one(&pointer, &address, place).await?;
                Ok((pointer, path))
            };
            fetches.push(fetch.boxed());
        }
        stream::iter(fetches).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn fetch_one(&self, pointer: &str, address: &str, place: PathBuf) -> Result<PathBuf, FetchError> {
        let pointer = pointer.trim_start_matches('/').to_owned();
        let unwritable = |error: std::io::Error| FetchError::Write { pointer: pointer.clone(), reason: error.to_string() };
        private_folder(&place).map_err(unwritable)?;
        if address.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) {
            let broken = |reason: String| FetchError::DataUri { pointer: pointer.clone(), reason };
            let data = DataUrl::process(address).map_err(|error| broken(format!("{error:?}")))?;
            let mime = data.mime_type();
            let path = place.join(name::of_mime(&format!("{}/{}", mime.type_, mime.subtype)));
            let (body, _) = heavy(address.len(), || data.decode_to_vec()).map_err(|error| broken(error.to_string()))?;
            tokio::fs::write(&path, body).await.map_err(unwritable)?;
            return Ok(path);
        }
        let url = check_address(address).map_err(|error| FetchError::Address { pointer: pointer.clone(), reason: error.to_string() })?;
        let path = place.join(name::of_url(&url));
        let failed = |error| FetchError::Download { pointer: pointer.clone(), reason: chain(&error).to_string() };
        self.net.download(&url, &path).await.map_err(failed)?;
        Ok(path)
    }
}

fn private_folder(path: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
