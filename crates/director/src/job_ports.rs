//! The ports of one leased job, over the calls to the API: its record, its interim webhook messages, its
//! output files and the version that it creates.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::chain;
use tidegate_core::director_api::{FinishCall, LeaseToken, UpdateCall, VersionCall, VersionReply};
use tidegate_core::director_metrics::DirectorMetrics;
use tidegate_core::lease::{LeaseRequest, LeaseResult};
use tidegate_core::leases::HeldLease;
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::store::{FinishOutcome, JobFinish, JobRecords, StoreError};
use tidegate_service::{
    InputDownloadError, InputDownloads, InterimMessages, OutputUpload, OutputUploads,
    VersionCreation, VersionError,
};

use crate::api_calls::ApiCalls;
use crate::api_error::ApiError;

/// How often an interim message is tried. The next one contains everything since.
const MAX_INTERIM_TRIES: u32 = 3;

/// One leased job at the API.
#[derive(Clone)]
pub(crate) struct LeasedJobPorts {
    pub(crate) api: Arc<dyn ApiCalls>,
    pub(crate) lease: HeldLease,
    pub(crate) token: LeaseToken,
    pub(crate) metrics: Arc<DirectorMetrics>,
}

#[async_trait]
impl JobRecords for LeasedJobPorts {
    async fn lease(&self, request: LeaseRequest) -> Result<LeaseResult, StoreError> {
        let fence = self.lease.fence;
        Ok(if request.nonce == fence.nonce {
            LeaseResult::Granted(fence)
        } else {
            LeaseResult::HeldByAnother
        })
    }

    /// Retried without limit: the result exists nowhere else. The nonce of the lease identifies it, so
    /// that a reply that was lost does no harm.
    async fn finish(&self, finish: JobFinish) -> Result<FinishOutcome, StoreError> {
        let call = FinishCall {
            finish,
            token: self.token.clone(),
        };
        loop {
            match self.api.finish(&call).await {
                Ok(reply) => return Ok(reply.outcome),
                Err(error) if error.is_permanent() => {
                    return Err(StoreError::Invalid(chain(&error).to_string()));
                }
                Err(_) => tokio::time::sleep(self.api.pause()).await,
            }
        }
    }
}

#[async_trait]
impl InterimMessages for LeasedJobPorts {
    async fn put(&self, message: OutboxMessage) -> bool {
        let call = UpdateCall {
            lease: self.lease.clone(),
            token: self.token.clone(),
            message,
        };
        for _ in 0..MAX_INTERIM_TRIES {
            match self.api.update(&call).await {
                Ok(reply) => {
                    self.metrics.updates.inc();
                    return reply.is_current;
                }
                Err(error) if error.is_permanent() => {
                    tracing::warn!(job = %self.lease.job.id, error = %chain(&error), "failed to send interim webhook");
                    return true;
                }
                Err(_) => tokio::time::sleep(self.api.pause()).await,
            }
        }
        true
    }
}

#[async_trait]
impl InputDownloads for LeasedJobPorts {
    /// Retried without limit, as uploads are.
    async fn download(
        &self,
        id: &str,
        folder: &Path,
    ) -> Result<Option<PathBuf>, InputDownloadError> {
        loop {
            match self.api.download(&self.token, id, folder).await {
                Ok(path) => return Ok(path),
                Err(ApiError::Unstorable(error)) if error.is_disk_full() => {
                    return Err(InputDownloadError::DiskFull);
                }
                Err(error) if error.is_permanent() => {
                    return Err(InputDownloadError::Failed(chain(&error).to_string()));
                }
                Err(_) => tokio::time::sleep(self.api.pause()).await,
            }
        }
    }
}

#[async_trait]
impl OutputUploads for LeasedJobPorts {
    /// Retried without limit: the job does not end before its files are stored. A cancel or the deadline
    /// of the job ends it.
    async fn upload(&self, upload: OutputUpload<'_>) -> Result<Option<String>, String> {
        let OutputUpload {
            file,
            size,
            name,
            mime,
        } = upload;
        loop {
            match self.api.upload(&self.token, name, mime, (file, size)).await {
                Ok(address) => return Ok(Some(address)),
                Err(ApiError::NoFileStore { .. }) => return Ok(None),
                Err(error) if error.is_permanent() => {
                    return Err(format!(
                        "failed to upload output file `{name}`: {}",
                        chain(&error)
                    ));
                }
                Err(_) => tokio::time::sleep(self.api.pause()).await,
            }
        }
    }
}

#[async_trait]
impl VersionCreation for LeasedJobPorts {
    /// Retried without limit: the training does not end before its version exists.
    async fn create(&self, weights: &str) -> Result<Option<String>, VersionError> {
        // A file that the API does not store is no version.
        if weights.starts_with("data:") {
            return Ok(None);
        }
        let call = VersionCall {
            lease: self.lease.clone(),
            token: self.token.clone(),
            weights: weights.to_owned(),
        };
        loop {
            match self.api.create_version(&call).await {
                Ok(VersionReply::Created(name)) => return Ok(Some(name)),
                Ok(VersionReply::NotCreated) => return Ok(None),
                Ok(VersionReply::Refused(reason)) => return Err(VersionError::Refused(reason)),
                Err(error) if error.is_permanent() => {
                    return Err(VersionError::Refused(chain(&error).to_string()));
                }
                Err(_) => tokio::time::sleep(self.api.pause()).await,
            }
        }
    }
}
