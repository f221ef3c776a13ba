//! The state of the job service of one model.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tidegate_core::lease::LeaseDurability;
use tidegate_core::port::Executor;
use tidegate_core::queue::QueueName;
use tidegate_core::record::{DeploymentRef, Target};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Shared;
use crate::config::{JobSettings, OnLost};
use crate::input::ModelSchema;
use crate::metrics::JobMetrics;
use crate::models::succession::Succession;
use crate::webhook::SenderDeps;

/// The state of the job service of one model.
pub(crate) struct PerModel {
    pub(crate) shared: Arc<Shared>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) target: Arc<Target>,
    pub(crate) queue_name: QueueName,
    pub(crate) metrics: Arc<JobMetrics>,
    pub(crate) senders: Arc<SenderDeps>,
    pub(super) schema: ArcSwapOption<ModelSchema>,
    /// How many events of a stream are kept for late readers.
    pub(crate) stream_history: usize,
    /// The tasks of the model's jobs.
    pub(crate) tasks: TaskTracker,
    pub(crate) succession: Succession,
    /// Whether a director task takes jobs from the queue.
    pub(crate) has_director: AtomicBool,
    /// Wakes the director.
    pub(crate) wake_director: Arc<Notify>,
    /// Cancelled when the service gets no more jobs.
    pub(crate) retired: CancellationToken,
    /// Whether the store rejected the last job.
    pub(crate) last_insert_failed: AtomicBool,
    /// What happens to jobs that were running when the server died.
    pub(crate) on_lost: OnLost,
    /// The longest time that the executor may run one job.
    pub(crate) job_timeout: Option<Duration>,
}

impl PerModel {
    pub(super) fn new(
        shared: Arc<Shared>,
        executor: Arc<dyn Executor>,
        target: Target,
        metrics: Arc<JobMetrics>,
        senders: SenderDeps,
    ) -> Self {
        let JobSettings {
            on_lost,
            job_timeout,
            stream_history,
            ..
        } = shared.settings;
        let senders = Arc::new(senders);
        if let Some(outbox) = &senders.outbox {
            outbox.add_model(&target.model, &senders);
        }
        let queue_name = shared
            .queue_names
            .of(&target, shared.deps.queue.is_shared());
        Self {
            shared,
            executor,
            queue_name,
            target: Arc::new(target),
            metrics,
            senders,
            schema: ArcSwapOption::empty(),
            tasks: TaskTracker::new(),
            succession: Succession::default(),
            has_director: AtomicBool::new(false),
            wake_director: Arc::default(),
            retired: CancellationToken::new(),
            last_insert_failed: AtomicBool::new(false),
            on_lost,
            job_timeout,
            stream_history,
        }
    }

    /// What the lease of a job survives when the model starts.
    pub(crate) fn lease_durability(&self) -> LeaseDurability {
        match self.on_lost {
            OnLost::Fail => LeaseDurability::Machine,
            // The job may run again, so a lease that is lost with the machine does no harm.
            OnLost::Retry { .. } => LeaseDurability::Process,
        }
    }

    /// The target of a job. Jobs that name no deployment share one.
    pub(crate) fn target_of(&self, deployment: Option<DeploymentRef>) -> Arc<Target> {
        match deployment {
            None => Arc::clone(&self.target),
            Some(_) => Arc::new(Target {
                deployment,
                ..(*self.target).clone()
            }),
        }
    }
}
