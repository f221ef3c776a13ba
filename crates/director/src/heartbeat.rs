//! Heartbeats: they keep the leases alive, offer the models, and bring cancels, lost leases and the queues
//! that the director takes jobs from.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidegate_core::chain;
use tidegate_core::director_api::{
    AssignedQueue, DirectorJobKind, HeartbeatCall, HeartbeatReply, RegisterCall,
};
use tidegate_core::director_metrics::HeartbeatOutcome;
use tidegate_core::leases::HeldLease;
use tidegate_core::queue::{QueueKind, QueueName};
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::director::{DirectorError, Inner, OnIsolated};
use crate::version_loop::{JobsOf, LoopKey, VersionLoop};

/// The queues of each loop.
pub(crate) type Assigned = BTreeMap<LoopKey, Vec<QueueName>>;

/// The longest time of one heartbeat.
const MAX_LIMIT: Duration = Duration::from_secs(10);
/// How often it is checked whether the schema of a model is known.
const SCHEMA_POLL: Duration = Duration::from_millis(100);
/// The length of a lease, before the API says it.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// What the last reply said.
struct Schedule {
    lease: Duration,
    interval: Duration,
    /// When the last heartbeat was sent that the API replied to, if only to say that its store does not
    /// answer.
    renewed_at: Instant,
    has_connected: bool,
}

impl Inner {
    /// Sends heartbeats, for ever.
    pub(crate) async fn send_heartbeats(self: &Arc<Self>) {
        let mut schedule = Schedule {
            lease: DEFAULT_LEASE,
            interval: Duration::from_secs(1),
            renewed_at: Instant::now(),
            has_connected: false,
        };
        loop {
            let (sent_at, call) = (Instant::now(), self.heartbeat_call());
            let limit = schedule.interval.clamp(Duration::from_secs(1), MAX_LIMIT);
            match self.api.heartbeat(&call, limit).await {
                Ok(reply) => {
                    self.metrics.heartbeats.of(HeartbeatOutcome::Replied).inc();
                    if !schedule.has_connected {
                        tracing::info!(
                            name = self.holder.name,
                            api = self.api.hosts(),
                            "connected to the API"
                        );
                    }
                    schedule = Schedule {
                        lease: reply.lease,
                        interval: reply.interval,
                        renewed_at: sent_at,
                        has_connected: true,
                    };
                    let is_registered = self.apply(&call.leases, reply).await;
                    if !is_registered {
                        self.pause(&schedule).await;
                    }
                }
                Err(ApiError::StoreUnavailable { .. }) => {
                    self.connected.send_replace(false);
                    // Leases do not expire while the store does not answer.
                    schedule.renewed_at = sent_at;
                    tokio::time::sleep(self.api.pause().min(schedule.interval)).await;
                }
                Err(_) => {
                    self.metrics.heartbeats.of(HeartbeatOutcome::Failed).inc();
                    self.connected.send_replace(false);
                    let is_expired = schedule.renewed_at.elapsed() >= schedule.lease;
                    if is_expired && schedule.has_connected {
                        self.isolate();
                    }
                    tokio::time::sleep(self.api.pause().min(schedule.interval)).await;
                }
            }
        }
    }

    /// The last heartbeat: the director has stopped.
    pub(crate) async fn retire(&self) {
        if let Err(error) = self.api.heartbeat(&self.heartbeat_call(), MAX_LIMIT).await {
            tracing::warn!(error = %chain(&error), "failed to tell the API that the director has stopped");
        }
    }

    fn heartbeat_call(&self) -> HeartbeatCall {
        HeartbeatCall {
            holder: self.holder.clone(),
            leases: self.leases.all(),
            models: self.offers.offers(),
            job_kind: self.config.job_kind,
            is_draining: self.draining.is_cancelled(),
        }
    }

    /// Waits until the next heartbeat is due.
    async fn pause(&self, schedule: &Schedule) {
        let due = schedule.renewed_at + schedule.interval;
        let schemas_known = async {
            if !self.offers.is_incomplete() {
                return std::future::pending().await;
            }
            while self.offers.is_incomplete() {
                tokio::time::sleep(SCHEMA_POLL).await;
            }
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(due) => {}
            () = self.heartbeat_now.notified() => {}
            () = schemas_known => {}
        }
    }

    /// Applies a reply. Returns whether models were registered, so that the next reply has their queues.
    async fn apply(self: &Arc<Self>, sent: &[HeldLease], reply: HeartbeatReply) -> bool {
        if reply.is_superseded {
            self.fail(DirectorError::Superseded {
                name: self.holder.name.clone(),
            });
            return false;
        }
        self.set_isolated(false);
        for job in &reply.lost {
            // The job may have another lease of this director since.
            sent.iter()
                .filter(|lease| lease.job == *job)
                .for_each(|lease| self.leases.lose(lease));
        }
        for job in &reply.cancel {
            self.request_stop(job);
        }
        self.release_unknown(reply.unlisted);
        self.assign(reply.queues, reply.trained_queues);
        self.connected.send_replace(true);
        self.register(&reply.unknown_versions).await
    }

    /// Registers the schemas that the API does not know.
    async fn register(&self, unknown_versions: &[String]) -> bool {
        let models = self.offers.registrations(unknown_versions);
        if models.is_empty() {
            return false;
        }
        let call = RegisterCall {
            holder: self.holder.clone(),
            models,
        };
        match self.api.register(&call).await {
            Ok(reply) => {
                for refused in &reply.refused {
                    tracing::error!(
                        model = refused.model,
                        version = refused.version,
                        reason = refused.reason,
                        "the API refused a model"
                    );
                    if !self.offers.refuse(refused) {
                        self.fail(DirectorError::ModelRefused {
                            model: refused.model.clone(),
                            reason: refused.reason.clone(),
                        });
                    }
                }
                true
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "failed to register models, retrying");
                false
            }
        }
    }

    /// Takes jobs from these queues from now on.
    fn assign(self: &Arc<Self>, queues: Vec<AssignedQueue>, trained: Vec<AssignedQueue>) {
        let own = queues.into_iter().map(|queue| (JobsOf::Version, queue));
        let trained = trained.into_iter().map(|queue| (JobsOf::Trained, queue));
        let trained = trained.filter(|_| self.trained.is_some());
        let mut assigned = Assigned::new();
        for (jobs_of, queue) in own.chain(trained) {
            let name = QueueName::new(&queue.name);
            let key = LoopKey {
                version: queue.version,
                jobs_of,
            };
            if takes_from(self.config.job_kind, &name) {
                assigned.entry(key).or_default().push(name);
            }
        }
        if **self.assigned.borrow() == assigned {
            return;
        }
        for (key, queues) in &assigned {
            let names: Vec<&str> = queues.iter().map(QueueName::as_str).collect();
            tracing::info!(
                version = key.version,
                queues = names.join(", "),
                "taking jobs"
            );
        }
        let keys: Vec<LoopKey> = assigned.keys().cloned().collect();
        self.assigned.send_replace(Arc::new(assigned));
        for key in keys {
            self.start_loop(key);
        }
    }

    /// Starts a loop, unless it runs.
    fn start_loop(self: &Arc<Self>, key: LoopKey) {
        let Some(version) = self.offers.version(&key.version) else {
            tracing::warn!(
                version = key.version,
                "the API assigned a queue of a version that is not served here"
            );
            return;
        };
        let mut loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.draining.is_cancelled() && loops.insert(key.clone()) {
            let director = Arc::clone(self);
            self.tasks
                .spawn(VersionLoop::new(director, version, key.jobs_of).run());
        }
    }

    /// The API could not be reached for the length of a lease: other directors may run the jobs by now.
    fn isolate(&self) {
        if self.is_isolated() {
            return;
        }
        self.set_isolated(true);
        self.metrics.isolations.inc();
        match self.config.on_isolated {
            OnIsolated::Stop => {
                let stopped = self.leases.abandon_predictions();
                tracing::error!(
                    stopped,
                    "the API cannot be reached for the length of a lease: stopped predictions, another director runs them"
                );
            }
            OnIsolated::Continue => {
                tracing::error!(
                    "the API cannot be reached for the length of a lease: jobs continue, another director may run them too"
                );
            }
        }
    }
}

/// Whether a director for this kind of jobs takes jobs from a queue.
fn takes_from(kind: DirectorJobKind, queue: &QueueName) -> bool {
    match queue.kind() {
        Some(QueueKind::VersionTraining) => kind == DirectorJobKind::Training,
        Some(QueueKind::FunctionPrediction) if queue.as_str() != QueueName::UNIFIED => {
            kind == DirectorJobKind::Procedure
        }
        // The unified queue has predictions and procedures.
        Some(QueueKind::FunctionPrediction) => kind != DirectorJobKind::Training,
        Some(
            QueueKind::VersionPrediction
            | QueueKind::DeploymentPrediction
            | QueueKind::HotswapPrediction,
        )
        | None => kind == DirectorJobKind::Prediction,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_director_takes_jobs_of_its_kind_only() {
        use DirectorJobKind::{Prediction, Procedure, Training};
        let queue = |kind| QueueName::of_kind(kind, "x");
        for (queue, kinds) in [
            (queue(QueueKind::VersionPrediction), vec![Prediction]),
            (queue(QueueKind::DeploymentPrediction), vec![Prediction]),
            (queue(QueueKind::HotswapPrediction), vec![Prediction]),
            (queue(QueueKind::FunctionPrediction), vec![Procedure]),
            (queue(QueueKind::VersionTraining), vec![Training]),
            (
                QueueName::new(QueueName::UNIFIED),
                vec![Prediction, Procedure],
            ),
        ] {
            let takers: Vec<_> = [Prediction, Training, Procedure]
                .into_iter()
                .filter(|kind| takes_from(*kind, &queue))
                .collect();
            assert_eq!(takers, kinds, "{queue}");
        }
    }
}
