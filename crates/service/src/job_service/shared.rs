//! What the job services of all models of a server share.

use std::sync::{Arc, OnceLock, Weak};

use tokio_util::sync::CancellationToken;

use crate::begun_jobs::BegunJobs;
use crate::cluster::followers::Followers;
use crate::config::{Deps, JobSettings};
use crate::models::trained::VersionMaker;
use crate::registry::{Registry, Retention};
use crate::waiting::claims::ActiveClaims;
use crate::waiting::loading::Loading;
use crate::waiting::queue_names::QueueNames;
use crate::waiting::waiting_jobs::WaitingJobs;

/// What the job services of all models of a server share.
pub(crate) struct Shared {
    pub(crate) deps: Deps,
    pub(crate) settings: JobSettings,
    pub(crate) registry: Registry,
    pub(crate) begun_jobs: BegunJobs,
    pub(crate) waiting_jobs: WaitingJobs,
    pub(crate) loading: Loading,
    pub(crate) claims: Arc<ActiveClaims>,
    pub(crate) queue_names: QueueNames,
    /// The handles to jobs that directors run.
    pub(crate) followers: Followers,
    /// Makes versions from the output of trainings; set once, when the server starts.
    pub(crate) version_maker: OnceLock<Weak<dyn VersionMaker>>,
    /// Cancelled when the server shuts down.
    pub(crate) closing: CancellationToken,
    /// Cancelled when responses must end that wait for jobs of directors: later than `closing`, because those jobs
    /// go on, and clients want the rest.
    pub(crate) unfollowed: CancellationToken,
    /// Cancelled when another process of the cluster has taken over the jobs, if that can happen: they go on
    /// there, and are left without an end.
    pub(crate) abandoned: Option<CancellationToken>,
}

impl Shared {
    pub(super) fn new(
        deps: Deps,
        settings: JobSettings,
        waiting_memory: usize,
        closing: CancellationToken,
        abandoned: Option<CancellationToken>,
    ) -> Self {
        // A job whose data was removed is read from the store only.
        let JobSettings {
            keep_for,
            keep_data_for,
            ..
        } = settings;
        let age = keep_data_for.map_or(keep_for, |data| data.min(keep_for));
        let retention = Retention {
            jobs: 1024,
            bytes: 32 * 1024 * 1024,
            age,
        };
        Self {
            deps,
            settings,
            registry: Registry::new(retention),
            begun_jobs: BegunJobs::default(),
            waiting_jobs: WaitingJobs::new(waiting_memory),
            loading: Loading::default(),
            claims: Arc::default(),
            queue_names: QueueNames::default(),
            followers: Followers::default(),
            version_maker: OnceLock::new(),
            closing,
            unfollowed: CancellationToken::new(),
            abandoned,
        }
    }

    /// Ends all work that would otherwise go on for ever.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.unfollowed.cancel();
    }
}
