//! Sets up what Replicate's API needs: documents, files, and secrets that survive a restart.

use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use tidegate_core::store::Documents;
use tidegate_http::RateLimits;
use tidegate_http::replicate::{self, PredictionRenderer, RenderAborted};
use tidegate_net::{AllowedNetworks, Url, parse_url};
use tidegate_service::{FileStore, TrainedVersions, WebhookSecrets};
use tidegate_store::MemoryDocuments;

use crate::cli::ServeArgs;
use crate::file_setup::{self, StoredFiles};
use crate::files_store::LocationUsers;
use crate::models::slug;
use crate::store_ports::DurableState;
use crate::usage_error::UsageError;

/// The namespace of the secrets from which the URLs of streams and files are derived.
const NAMESPACE: &str = "replicate";
pub(crate) const STREAM_SECRET: &str = "stream-secret";

/// The parts of Replicate's API that all models share.
pub(crate) struct ReplicateSetup {
    pub(crate) renderer: PredictionRenderer,
    /// The documents of the store, if there is one.
    durable_documents: Option<Arc<dyn Documents>>,
    /// The same, or documents in memory.
    documents: Arc<dyn Documents>,
    files: Option<StoredFiles>,
    public_url: Option<Url>,
}

impl ReplicateSetup {
    pub(crate) async fn open(
        args: &ServeArgs,
        state: Option<&DurableState>,
    ) -> anyhow::Result<Self> {
        let durable_documents = state.map(|state| Arc::clone(&state.ports.documents));
        let aborted = if args.replicate_legacy_status {
            RenderAborted::AsCanceled
        } else {
            RenderAborted::AsIs
        };
        let keep_jobs_for = file_setup::keep_jobs_for(args.keep_for, args.keep_data_for);
        let users = LocationUsers::OneProcess;
        let files = file_setup::open(&args.files, keep_jobs_for, state, users).await?;
        let links = files.as_ref().map(|files| Arc::clone(&files.links));
        Ok(Self {
            renderer: PredictionRenderer::new(
                &persistent_secret(durable_documents.as_deref(), STREAM_SECRET).await?,
                aborted,
            )
            .with_files(links),
            public_url: args.public_url.clone(),
            documents: durable_documents
                .clone()
                .unwrap_or_else(|| Arc::new(MemoryDocuments::default())),
            files,
            durable_documents,
        })
    }

    /// The file store, if there is a data directory.
    pub(crate) fn file_store(&self) -> Option<Arc<FileStore>> {
        self.files.as_ref().map(|files| Arc::clone(&files.store))
    }

    /// The trained versions.
    pub(crate) fn trained_versions(&self) -> Arc<TrainedVersions> {
        Arc::new(TrainedVersions::new(
            Arc::clone(&self.documents),
            self.file_store(),
        ))
    }

    /// With a data directory, the server has a webhook secret from now on, and signs webhooks with
    /// it. Called before the first webhook is sent.
    pub(crate) async fn load_webhook_secret(
        &self,
        webhook_secrets: &WebhookSecrets,
    ) -> anyhow::Result<()> {
        if let Some(documents) = self.durable_documents.as_deref() {
            replicate::ensure_webhook_secret(webhook_secrets, documents)
                .await
                .context("failed to read or store the webhook secret")?;
        }
        Ok(())
    }

    /// The configuration of the API.
    pub(crate) fn config(
        &self,
        args: &ServeArgs,
        own_url: &str,
        webhook_secrets: WebhookSecrets,
    ) -> anyhow::Result<replicate::Config> {
        Ok(replicate::Config {
            max_body: args.max_body,
            body_timeout: args.body_timeout,
            max_file: args.max_file as u64,
            public_url: self.public_url.clone(),
            own_url: Url::parse(own_url).context("the address of the server is not a URL")?,
            renderer: self.renderer.clone(),
            webhook_secrets,
            documents: Arc::clone(&self.documents),
            limits: Arc::new(RateLimits::new(args.rate_limit_create, args.rate_limit)),
            files: self.files.as_ref().map(|files| Arc::clone(&files.links)),
        })
    }
}

/// A random secret. With documents it is stored, and stays the same after a restart.
pub(crate) async fn persistent_secret(
    documents: Option<&dyn Documents>,
    name: &str,
) -> anyhow::Result<Vec<u8>> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).expect("the system provides random bytes");
    let Some(documents) = documents else {
        return Ok(secret.to_vec());
    };
    let json = Bytes::from(serde_json::to_vec(&secret)?);
    let stored = documents
        .put_new(NAMESPACE, name, json)
        .await
        .context("failed to store a secret")?;
    serde_json::from_slice(&stored).context("failed to read a stored secret")
}

/// Reads `--owner`.
pub(crate) fn owner(text: &str) -> Result<String, String> {
    if !text.is_empty() && slug(text) == text {
        Ok(text.to_owned())
    } else {
        Err("use lower-case letters, digits, `-`, `_` and `.`".to_owned())
    }
}

/// Reads `--public-url`.
pub(crate) fn public_url(text: &str) -> Result<Url, UsageError> {
    let hint =
        "give the URL at which clients reach the server, such as `https://models.example.com`";
    let url = parse_url(text, &AllowedNetworks::all())
        .map_err(|error| UsageError::new(error.to_string()).hint(hint))?;
    match url.query().or(url.fragment()) {
        None => Ok(url),
        Some(_) => Err(UsageError::new("it contains `?` or `#`").hint(hint)),
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
    fn a_public_url_has_no_query() {
        assert!(
            public_url("https://models.example.com").is_ok()
                && public_url("http://10.0.0.1:5000/api/").is_ok()
        );
        assert!(public_url("models.example.com").is_err() && public_url("https://h/?a").is_err());
    }
}
