//! What makes a server a platform: documents, files, and secrets that last.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use tidegate_core::store::Documents;
use tidegate_http::replicate::{self, FileLinks, PredictionRenderer, RateLimits, RenderAborted};
use tidegate_net::{AllowedNetworks, Url, parse_url};
use tidegate_service::{FileRules, FileStore, Secrets, TrainedVersions};
use tidegate_store::MemoryDocuments;

use crate::cli::ServeArgs;
use crate::data_dir::OpenDataDir;
use crate::files_store::{self, BlobLocation};
use crate::models::slug;
use crate::usage_error::UsageError;

/// Where the secrets are kept that make addresses of streams and of files.
const SHELF: &str = "replicate";
const STREAMS: &str = "stream-secret";
const FILES: &str = "files-secret";

/// What the models of a server have in common for who calls them.
pub(crate) struct ReplicateSetup {
    pub(crate) renderer: PredictionRenderer,
    documents: Option<Arc<dyn Documents>>,
    /// Things that callers make; without a place to write, in memory.
    shelves: Arc<dyn Documents>,
    files: Option<(Arc<FileStore>, Arc<FileLinks>)>,
    public_url: Option<Url>,
}

impl ReplicateSetup {
    pub(crate) async fn of(args: &ServeArgs, data: Option<&OpenDataDir>) -> anyhow::Result<Self> {
        let documents = data.map(|data| Arc::clone(&data.store) as Arc<dyn Documents>);
        let aborted = if args.replicate_legacy_status {
            RenderAborted::AsCanceled
        } else {
            RenderAborted::AsIs
        };
        let files = files(args, data).await?;
        let links = files.as_ref().map(|(_, links)| Arc::clone(links));
        Ok(Self {
            renderer: PredictionRenderer::new(
                &secret(documents.as_deref(), STREAMS).await?,
                aborted,
            )
            .with_files(links),
            public_url: args.public_url.clone(),
            shelves: documents
                .clone()
                .unwrap_or_else(|| Arc::new(MemoryDocuments::default())),
            files,
            documents,
        })
    }

    /// The files that are kept, if any can be.
    pub(crate) fn file_store(&self) -> Option<Arc<FileStore>> {
        self.files
            .as_ref()
            .map(|(file_store, _)| Arc::clone(file_store))
    }

    /// Where versions that were trained are written down.
    pub(crate) fn register(&self) -> Arc<TrainedVersions> {
        Arc::new(TrainedVersions::new(
            Arc::clone(&self.shelves),
            self.file_store(),
        ))
    }

    /// The face. Webhooks are signed from now on, if the secret for it can be kept.
    pub(crate) async fn face(
        self,
        args: &ServeArgs,
        own_url: &str,
        webhook_secrets: Secrets,
    ) -> anyhow::Result<replicate::Config> {
        if let Some(documents) = self.documents.as_deref() {
            replicate::ensure_webhook_secret(&webhook_secrets, documents)
                .await
                .context("the webhook secret cannot be kept or read")?;
        }
        Ok(replicate::Config {
            max_body: args.max_body,
            body_timeout: args.body_timeout,
            public_url: self.public_url,
            own_url: Url::parse(own_url).context("the address that is listened on is no URL")?,
            renderer: self.renderer,
            webhook_secrets,
            documents: self.shelves,
            limits: RateLimits::new(args.rate_limit_create, args.rate_limit),
            files: self.files.map(|(_, links)| links),
        })
    }
}

/// Opens the files that are kept.
async fn files(
    args: &ServeArgs,
    data: Option<&OpenDataDir>,
) -> anyhow::Result<Option<(Arc<FileStore>, Arc<FileLinks>)>> {
    let Some(data) = data else {
        return match &args.files_store {
            None => Ok(None),
            Some(_) => Err(UsageError::new(
                "--files-store needs a data folder, for what is known about the files",
            )
            .hint("give one with --data-dir")
            .into()),
        };
    };
    let BlobLocation { blobs, spool } = files_store::open(args.files_store.as_ref(), data).await?;
    // The files of a job are its data.
    let keep_jobs_for = args
        .keep_data_for
        .map_or(args.keep_for, |data| data.min(args.keep_for));
    let rules = FileRules {
        keep_for: args.keep_files_for,
        keep_jobs_for,
        max_per_account: args.max_stored_files.map(|bytes| bytes as u64),
    };
    let documents = Arc::clone(&data.store) as Arc<dyn Documents>;
    let file_store = FileStore::open(blobs, spool, documents, rules)
        .await
        .context("the place where files are kept cannot be used")?;
    let links = FileLinks::new(
        Arc::clone(&file_store),
        &secret(Some(&*data.store), FILES).await?,
        keep_jobs_for,
    );
    Ok(Some((file_store, Arc::new(links))))
}

/// The secret behind addresses; they stay good over a restart when it can be kept.
pub(crate) async fn secret(
    documents: Option<&dyn Documents>,
    name: &str,
) -> anyhow::Result<Vec<u8>> {
    let mut made = [0; 32];
    getrandom::fill(&mut made).expect("the system gives random bits");
    let Some(documents) = documents else {
        return Ok(made.to_vec());
    };
    let json = Bytes::from(serde_json::to_vec(&made)?);
    let kept = documents
        .put_new(SHELF, name, json)
        .await
        .context("a secret cannot be kept")?;
    serde_json::from_slice(&kept).context("a secret that was kept cannot be read")
}

/// Reads `--owner`.
pub(crate) fn owner(text: &str) -> Result<String, String> {
    if !text.is_empty() && slug(text) == text {
        Ok(text.to_owned())
    } else {
        Err("use small letters, digits, `-`, `_` and `.`".to_owned())
    }
}

/// Reads `--public-url`.
pub(crate) fn public_url(text: &str) -> Result<Url, UsageError> {
    let hint =
        "give the address by which callers reach the server, like `https://models.example.com`";
    let url = parse_url(text, &AllowedNetworks::all())
        .map_err(|error| UsageError::new(error.to_string()).hint(hint))?;
    match url.query().or(url.fragment()) {
        None => Ok(url),
        Some(_) => Err(UsageError::new("it has a `?` or a `#`").hint(hint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_part_of_a_path() {
        assert!(
            owner("ann").is_ok()
                && owner("Ann").is_err()
                && owner("").is_err()
                && owner("a/b").is_err()
        );
    }

    #[test]
    fn a_public_address_is_a_place_and_nothing_more() {
        assert!(
            public_url("https://models.example.com").is_ok()
                && public_url("http://10.0.0.1:5000/api/").is_ok()
        );
        assert!(public_url("models.example.com").is_err() && public_url("https://h/?a").is_err());
    }
}
