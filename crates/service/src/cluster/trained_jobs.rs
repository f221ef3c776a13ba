//! The calls of directors about trained versions: the version of a job, the weights of a version, and the
//! version that a training creates.

use std::sync::Arc;

use tidegate_core::director_api::{VersionCall, VersionReply};
use tidegate_core::file_index::StoredFile;
use tidegate_core::leases::{GrantedLease, HeldLease, JobRef};
use tidegate_core::record::Target;
use tidegate_core::store::StoreError;
use tidegate_core::trained_version::Weights;

use super::trained_catalog::VERSION_REMOVED;
use super::{CallError, DirectorCalls};
use crate::files::store::FileStoreError;
use crate::models::trained::{TrainedModel, Training, VersionError};
use crate::snapshot::TerminalState;

/// What runs a job.
pub(super) enum VersionOfJob {
    /// A registered version.
    Registered,
    /// A trained version.
    Trained(Arc<TrainedModel>),
    /// A trained version that was removed.
    Removed,
}

impl DirectorCalls {
    /// The version of a job that a director has the lease of.
    pub(super) async fn version_of_job(&self, target: &Target) -> Result<VersionOfJob, StoreError> {
        if self.catalog.knows(&target.version) {
            return Ok(VersionOfJob::Registered);
        }
        // The version may have been changed or removed by another process.
        self.models.refresh_trained_models().await?;
        Ok(match self.models.trained_model_by_any_id(target) {
            Some(trained) => VersionOfJob::Trained(trained),
            None if self.models.was_removed(&target.version) => VersionOfJob::Removed,
            None => VersionOfJob::Registered,
        })
    }

    /// Ends a job whose version was removed while it waited.
    pub(super) async fn end_removed(&self, granted: GrantedLease) -> Result<(), StoreError> {
        let GrantedLease { record, fence, .. } = granted;
        let lease = HeldLease {
            job: JobRef::from(&record.spec),
            fence,
        };
        self.cluster.leases.release(&lease).await?;
        let terminal = TerminalState::Failed(VERSION_REMOVED.to_owned());
        self.models
            .lookup()
            .end_in_cluster(&self.cluster, record, terminal)
            .await
    }

    /// The file with the weights of the trained version with this key.
    pub async fn weights_of(&self, key: &str) -> Result<Arc<StoredFile>, CallError> {
        let find = || {
            let mut all = self.models.trained_models().into_iter();
            all.find(|trained| trained.version.key() == key)
        };
        let mut found = find();
        if found.is_none() {
            self.models.refresh_trained_models().await?;
            found = find();
        }
        let trained = found.ok_or(CallError::UnknownFile)?;
        let Weights::File { id, .. } = &trained.version.weights else {
            return Err(CallError::UnknownFile);
        };
        let file = self.file_store()?.find(&trained.version.owner(), id).await;
        file?.ok_or(CallError::UnknownFile)
    }

    /// Creates a version from a training. The reply means that it is stored.
    pub async fn create_version(&self, call: VersionCall) -> Result<VersionReply, CallError> {
        self.check(&call.token, &call.lease)?;
        let lookup = self.models.lookup();
        let store = lookup.store().expect("a cluster has a store");
        let JobRef { account, id } = &call.lease.job;
        let record = store.get(account, id).await?;
        // A later attempt creates its own version.
        let record = record.filter(|record| {
            !record.status.is_terminal() && record.attempt == call.lease.fence.attempt
        });
        let (Some(record), Some(maker)) = (record, lookup.version_maker()) else {
            return Ok(VersionReply::NotCreated);
        };
        let Some(destination) = &record.spec.destination else {
            return Ok(VersionReply::NotCreated);
        };
        let training = Training {
            account,
            id,
            target: &record.spec.target,
            destination,
            weights: &call.weights,
        };
        match maker.make(training).await {
            Ok(Some(trained)) => Ok(VersionReply::Created(trained.full_name())),
            Ok(None) => Ok(VersionReply::NotCreated),
            // The director repeats the call.
            Err(VersionError::Storage(FileStoreError::Store(
                error @ (StoreError::Unavailable(_) | StoreError::Full(_)),
            ))) => Err(error.into()),
            Err(error) => Ok(VersionReply::Refused(error.client_message())),
        }
    }
}
