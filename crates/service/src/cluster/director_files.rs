//! The files of jobs that directors run: output files that they upload, and stored files that they need.
//!
//! A director gets a placeholder for each output file, which the output contains. Only the API knows the URL
//! of a file: it adds them to the webhook messages that directors render.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::director_api::LeaseToken;
use tidegate_core::file_index::StoredFile;
use tidegate_core::leases::JobRef;
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::record::WebhookSpec;

use super::{CallError, DirectorCalls};
use crate::files::store::{FileMetadata, FileStore, FileStoreError, FileWriter};

/// A webhook message that contains an output.
#[derive(Clone, Copy)]
pub struct LinkedMessage<'a> {
    /// The job.
    pub job: &'a JobRef,
    /// The webhook.
    pub hook: &'a WebhookSpec,
    /// When the job ended, if it has.
    pub completed_at: Option<Timestamp>,
}

/// Adds the URLs of files to webhook messages.
pub trait MessageLinks: Send + Sync {
    /// The body with a URL in place of each placeholder.
    fn with_urls(&self, message: LinkedMessage<'_>, body: &Bytes) -> Bytes;
}

/// Stored files and their URLs.
pub(super) struct DirectorFiles {
    file_store: Arc<FileStore>,
    links: Arc<dyn MessageLinks>,
}

impl DirectorCalls {
    /// The same, with files.
    pub fn with_files(mut self, file_store: Arc<FileStore>, links: Arc<dyn MessageLinks>) -> Self {
        self.files = Some(DirectorFiles { file_store, links });
        self
    }

    /// The file store.
    pub fn file_store(&self) -> Result<&Arc<FileStore>, CallError> {
        let files = self.files.as_ref().ok_or(CallError::NoFileStore)?;
        Ok(&files.file_store)
    }

    /// The job whose lease a token belongs to.
    pub fn job_of(&self, token: &LeaseToken) -> Result<JobRef, CallError> {
        Ok(self.verified(token)?.job)
    }

    /// Stores an output file of a job; returns its placeholder. A file that is uploaded twice, because the
    /// reply was lost, is stored twice; both are removed with the job.
    pub async fn store_output(
        &self,
        job: &JobRef,
        writer: FileWriter,
        (name, content_type): (String, String),
    ) -> Result<String, CallError> {
        let file_store = self.file_store()?;
        let metadata = FileMetadata::of_output(name, content_type);
        let stored = file_store.store_output(&job.account, &job.id, writer, metadata);
        let file = stored.await?;
        Ok(file_store.placeholder_for(&job.account, &job.id, &file))
    }

    /// A stored file of the account of a job.
    pub async fn stored_file(&self, job: &JobRef, id: &str) -> Result<Arc<StoredFile>, CallError> {
        let found = self.file_store()?.find(&job.account, id).await;
        found
            .map_err(FileStoreError::from)?
            .ok_or(CallError::UnknownFile)
    }

    /// Replaces the placeholders in a message of a director.
    pub(super) fn add_urls(
        &self,
        job: &JobRef,
        message: &mut OutboxMessage,
        completed_at: Option<Timestamp>,
    ) {
        if let Some(files) = &self.files {
            let linked = LinkedMessage {
                job,
                hook: &message.hook,
                completed_at,
            };
            message.body = files.links.with_urls(linked, &message.body);
        }
    }
}
