//! The leases of this director: the jobs that it runs. Heartbeats keep them alive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tidegate_core::JobKind;
use tidegate_core::lease::{Fence, Nonce};
use tidegate_core::leases::{HeldLease, JobRef};
use tokio_util::sync::CancellationToken;

/// Why a job is stopped without an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AbandonCause {
    /// The lease is lost: the job has ended, or runs elsewhere.
    Lost,
    /// The API could not be reached for the length of a lease.
    Isolated,
    /// The director stops, and the job did not end in time.
    Stopping,
}

/// The jobs that the director runs.
#[derive(Default)]
pub(crate) struct HeldLeases {
    jobs: Mutex<BTreeMap<JobRef, LeasedJobState>>,
    /// The nonces of requests without a reply: their leases may be granted already.
    requested: Mutex<BTreeSet<u128>>,
}

/// What is known about one of them.
#[derive(Clone)]
struct LeasedJobState {
    fence: Fence,
    kind: JobKind,
    abandoned: Arc<Abandoned>,
}

#[derive(Default)]
struct Abandoned {
    cause: OnceLock<AbandonCause>,
    token: CancellationToken,
}

impl Abandoned {
    fn set(&self, cause: AbandonCause) {
        self.cause.get_or_init(|| cause);
        self.token.cancel();
    }
}

impl HeldLeases {
    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<JobRef, LeasedJobState>) -> R) -> R {
        f(&mut self.jobs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a lease, until the guard is dropped. An older lease of the same job is lost.
    pub(crate) fn hold(self: &Arc<Self>, lease: HeldLease, kind: JobKind) -> LeaseGuard {
        let HeldLease { job, fence } = lease;
        let abandoned = Arc::<Abandoned>::default();
        let state = LeasedJobState {
            fence,
            kind,
            abandoned: Arc::clone(&abandoned),
        };
        let older = self.with(|jobs| jobs.insert(job.clone(), state));
        if let Some(older) = older {
            older.abandoned.set(AbandonCause::Lost);
        }
        LeaseGuard {
            leases: Arc::clone(self),
            job,
            fence,
            abandoned,
        }
    }

    /// Records that a lease is requested, until the guard is dropped.
    pub(crate) fn request(self: &Arc<Self>, nonce: Nonce) -> RequestGuard {
        self.requested().insert(nonce.0);
        RequestGuard {
            leases: Arc::clone(self),
            nonce,
        }
    }

    /// Whether the director holds or requests a lease.
    pub(crate) fn knows(&self, lease: &HeldLease) -> bool {
        // In this order: a granted lease is held before its request ends.
        if self.requested().contains(&lease.fence.nonce.0) {
            return true;
        }
        self.with(|jobs| {
            jobs.get(&lease.job)
                .is_some_and(|state| state.fence == lease.fence)
        })
    }

    fn requested(&self) -> MutexGuard<'_, BTreeSet<u128>> {
        self.requested
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// All leases.
    pub(crate) fn all(&self) -> Vec<HeldLease> {
        self.with(|jobs| {
            let lease = |(job, state): (&JobRef, &LeasedJobState)| HeldLease {
                job: job.clone(),
                fence: state.fence,
            };
            jobs.iter().map(lease).collect()
        })
    }

    /// Stops the job of a lease, unless it has another lease since.
    pub(crate) fn lose(&self, lease: &HeldLease) {
        let state = self.with(|jobs| jobs.get(&lease.job).cloned());
        if let Some(state) = state.filter(|state| state.fence == lease.fence) {
            state.abandoned.set(AbandonCause::Lost);
        }
    }

    /// Stops all predictions; returns their number. Trainings continue.
    pub(crate) fn abandon_predictions(&self) -> usize {
        self.abandon(AbandonCause::Isolated, |kind| match kind {
            JobKind::Prediction => true,
            JobKind::Training => false,
        })
    }

    /// Stops all jobs; returns their number.
    pub(crate) fn abandon_all(&self, cause: AbandonCause) -> usize {
        self.abandon(cause, |_| true)
    }

    fn abandon(&self, cause: AbandonCause, applies: impl Fn(JobKind) -> bool) -> usize {
        let states: Vec<_> = self.with(|jobs| jobs.values().cloned().collect());
        let stopped = states.iter().filter(|state| applies(state.kind));
        stopped.map(|state| state.abandoned.set(cause)).count()
    }
}

/// A request for a lease.
pub(crate) struct RequestGuard {
    leases: Arc<HeldLeases>,
    nonce: Nonce,
}

impl RequestGuard {
    pub(crate) fn nonce(&self) -> Nonce {
        self.nonce
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.leases.requested().remove(&self.nonce.0);
    }
}

/// A lease of this director.
pub(crate) struct LeaseGuard {
    leases: Arc<HeldLeases>,
    job: JobRef,
    fence: Fence,
    abandoned: Arc<Abandoned>,
}

impl LeaseGuard {
    /// The lease.
    pub(crate) fn lease(&self) -> HeldLease {
        HeldLease {
            job: self.job.clone(),
            fence: self.fence,
        }
    }

    /// Cancelled when the job must be stopped without an end.
    pub(crate) fn abandoned(&self) -> &CancellationToken {
        &self.abandoned.token
    }

    /// Why the job was stopped without an end.
    pub(crate) fn abandon_cause(&self) -> Option<AbandonCause> {
        self.abandoned.cause.get().copied()
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.leases.with(|jobs| {
            let is_same = jobs
                .get(&self.job)
                .is_some_and(|state| state.fence == self.fence);
            if is_same {
                jobs.remove(&self.job);
            }
        });
    }
}
