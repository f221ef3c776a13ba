//! The port of the API: the calls that a director makes. `ApiClient` makes them over HTTP.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::director_api::{
    FinishCall, FinishReply, HeartbeatCall, HeartbeatReply, LeaseCall, LeaseReply, LeaseToken,
    PublishCall, PublishReply, RegisterCall, RegisterReply, ReleaseCall, UpdateCall, UpdateReply,
    VersionCall, VersionReply,
};

use crate::api_error::ApiError;

/// The calls of a director to the API. A call that failed may have had its effect.
#[async_trait]
pub trait ApiCalls: Send + Sync {
    /// The hosts of the API, for log lines.
    fn hosts(&self) -> String;

    /// The pause before a failed call is repeated.
    fn pause(&self) -> Duration;

    /// Keeps the leases alive. `limit` is the longest time of one attempt.
    async fn heartbeat(
        &self,
        call: &HeartbeatCall,
        limit: Duration,
    ) -> Result<HeartbeatReply, ApiError>;

    /// Registers models with their schemas.
    async fn register(&self, call: &RegisterCall) -> Result<RegisterReply, ApiError>;

    /// Asks for the lease of a job.
    async fn lease(&self, call: &LeaseCall) -> Result<LeaseReply, ApiError>;

    /// Gives a lease back.
    async fn release(&self, call: &ReleaseCall) -> Result<(), ApiError>;

    /// Sends an interim webhook message.
    async fn update(&self, call: &UpdateCall) -> Result<UpdateReply, ApiError>;

    /// Ends a job.
    async fn finish(&self, call: &FinishCall) -> Result<FinishReply, ApiError>;

    /// Publishes live events.
    async fn publish(&self, call: &PublishCall) -> Result<PublishReply, ApiError>;

    /// Uploads an output file of this size; returns its address.
    async fn upload(
        &self,
        token: &LeaseToken,
        name: &str,
        mime: &str,
        file: (&File, u64),
    ) -> Result<String, ApiError>;

    /// Downloads a stored file of the account of a job into `folder`; returns its path, or `None` if there is
    /// no such file.
    async fn download(
        &self,
        token: &LeaseToken,
        id: &str,
        folder: &Path,
    ) -> Result<Option<PathBuf>, ApiError>;

    /// Creates a version from a training.
    async fn create_version(&self, call: &VersionCall) -> Result<VersionReply, ApiError>;

    /// Downloads the weights of the trained version with this key to a new file; returns whether the API has
    /// them.
    async fn download_weights(&self, key: &str, to: &Path) -> Result<bool, ApiError>;
}
