//! The port of executors, as `dyn` traits, so that crates compile independently of each other.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::health::{Health, HealthReport, LoadSpan};
use crate::pool_status::{PoolStatus, SlotCounts};
use crate::{Account, Event, Refusal, Work};

/// A boxed future, for ports that return futures without naming their type.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Called once the end of a job is committed and visible to clients. Dropped without a call if the
/// service leaves the job without a committed end.
pub type OnCommitted = Box<dyn FnOnce() + Send>;

/// Runs the jobs of one model.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Reserves capacity for one job of an account, or refuses. Does not wait. Jobs that are queued
    /// for capacity are served fairly: accounts take turns.
    fn admit(&self, account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal>;

    /// Checks whether a job may wait for capacity for an unlimited time.
    fn accepts(&self) -> Result<(), Refusal> {
        match self.report().health {
            Health::Unknown | Health::Starting | Health::Ready | Health::Busy => Ok(()),
            health @ (Health::SetupFailed | Health::Defunct) => Err(Refusal::NotReady { health }),
        }
    }

    /// The maximum number of admissions that a caller with enough jobs should request at the same
    /// time. More than one for an executor that grants several at once.
    fn max_pending(&self) -> usize {
        1
    }

    /// The model's OpenAPI document, once the model is loaded. The same `Arc` until the document
    /// changes.
    fn schema(&self) -> Option<Arc<Bytes>>;

    /// The model's OpenAPI document, as soon as the model's code has been read, which may be long
    /// before the model is loaded.
    fn description(&self) -> Option<Arc<Bytes>> {
        self.schema()
    }

    /// The health of the model, without calling the model's own health check.
    fn report(&self) -> HealthReport;

    /// The health of the model, including the result of the model's own health check. Concurrent
    /// callers share one check.
    async fn check(&self) -> HealthReport;

    /// The latest time span in which jobs had to wait because the model was loading; `None` if there
    /// was none.
    fn last_load(&self) -> Option<LoadSpan> {
        None
    }

    /// Stops the executor. Jobs that are still running end with it.
    async fn stop(&self) {}

    /// The number of concurrent jobs that the model's code currently asks for; `None` if it does
    /// not say. The model never gets more jobs than it has slots.
    fn desired_concurrency(&self) -> Option<usize> {
        None
    }

    /// Waits until the value of [`Executor::desired_concurrency`] may have changed; forever for an
    /// executor that never returns one. Only one caller may wait at a time.
    async fn desired_concurrency_changed(&self) {
        std::future::pending().await
    }

    /// The slots and processes that run the jobs; empty where they are not known.
    fn pool_status(&self) -> PoolStatus {
        PoolStatus::default()
    }

    /// The slots of [`Executor::pool_status`]. It costs little, so it can be asked for each job.
    fn slot_counts(&self) -> SlotCounts {
        let PoolStatus { slots, free, .. } = self.pool_status();
        SlotCounts { slots, free }
    }
}

/// How long a job may wait for capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Not at all: the job is admitted at once or refused.
    NoWait,
    /// As long as the operator's limits for waiting callers allow, and only for a model that works.
    Bounded,
    /// Until it is admitted, also while the model starts. For jobs that are stored, so that no
    /// client has to stay connected.
    Unbounded,
}

/// The result of a successful [`Executor::admit`].
pub enum Admitted {
    /// The job can start at once.
    Now(Box<dyn Admission>),
    /// The job is queued until the future resolves. Dropping the future leaves the queue.
    Queued(BoxFuture<Result<Box<dyn Admission>, Refusal>>),
}

/// The right to run one job. Dropping it frees the slot.
#[async_trait]
pub trait Admission: Send {
    /// Starts the job.
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running>;
}

/// A job that an executor runs. Dropping it after [`Event::Ended`] frees its slot. Dropping it
/// earlier is allowed: this stops the job, and frees the slot when the job has stopped.
#[async_trait]
pub trait Running: Send {
    /// The next event. Cancel-safe: the future can be dropped and the method called again. Must not
    /// be called after [`Event::Ended`].
    async fn next(&mut self) -> Event;

    /// Whether the job requested that its process is replaced by a new one.
    fn refreshes(&self) -> bool {
        false
    }

    /// Requests that the job stops. It still ends with [`Event::Ended`].
    fn cancel(&mut self);

    /// Resolves when the files of a job that has ended are no longer in use, for an executor that ends
    /// a canceled job while its process continues. `None`: they are not in use.
    fn files_in_use(&mut self) -> Option<BoxFuture<()>> {
        None
    }

    /// What to call when the end of the job is committed, for an executor that waits for it. Taken
    /// once it is decided how the job ends.
    fn on_committed(&mut self) -> Option<OnCommitted> {
        None
    }
}
