//! The doors between the rooms, as `dyn` traits so that the rooms compile apart.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::health::{Health, HealthReport};
use crate::pool_status::PoolStatus;
use crate::{Account, Event, Refusal, Work};

/// A future that any room can hold.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Something that runs jobs of one model.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Takes a place for one job of an account, or refuses. Does not wait. In a line, accounts take turns.
    fn admit(&self, account: &Account, wait: WaitPolicy) -> Result<Admitted, Refusal>;

    /// Whether a job may be left to wait for a place, however long that takes.
    fn accepts(&self) -> Result<(), Refusal> {
        match self.report().health {
            Health::Unknown | Health::Starting | Health::Ready | Health::Busy => Ok(()),
            health @ (Health::SetupFailed | Health::Defunct) => Err(Refusal::NotReady { health }),
        }
    }

    /// How many places are worth asking for at once, for somebody who has jobs enough. More than one where places
    /// are given by the handful.
    fn max_pending(&self) -> usize {
        1
    }

    /// The model's OpenAPI document, once it has been loaded. The same `Arc` until it changes.
    fn schema(&self) -> Option<Arc<Bytes>>;

    /// The same as soon as the model's code has been read, which may be long before it is loaded.
    fn description(&self) -> Option<Arc<Bytes>> {
        self.schema()
    }

    /// How the model is, without asking its own health check.
    fn report(&self) -> HealthReport;

    /// How the model is, with what its own health check says. Simultaneous callers share one check.
    async fn check(&self) -> HealthReport;

    /// Ends it. Jobs that still run are ended with it.
    async fn stop(&self) {}

    /// How many jobs at once the model's code wants at the moment, if it says. It never gets more than it has slots.
    fn desired_concurrency(&self) -> Option<usize> {
        None
    }

    /// Waits until [`Executor::wants`] may say something else; for ever where it says nothing. One may wait.
    async fn desired_concurrency_changed(&self) {
        std::future::pending().await
    }

    /// Who works on the jobs; nobody where that is not known.
    fn pool_status(&self) -> PoolStatus {
        PoolStatus::default()
    }
}

/// How long a job can wait for its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// It does not wait: a place now, or none.
    NoWait,
    /// As long as the operator lets callers wait, and only for a model that works.
    Bounded,
    /// Until it is served: it is written down and nobody is kept waiting. Also while the model starts.
    Unbounded,
}

/// What an executor gives to one job.
pub enum Admitted {
    /// A place to run at once.
    Now(Box<dyn Admission>),
    /// A place in the line. Dropping it leaves the line.
    Queued(BoxFuture<Result<Box<dyn Admission>, Refusal>>),
}

/// The right to run one job. Dropping it gives the place back.
#[async_trait]
pub trait Admission: Send {
    /// Hands the job over.
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running>;
}

/// A job in the hands of an executor. Dropping it after [`Event::Ended`] frees its place; dropping it
/// before is allowed, stops the job, and frees the place when it has stopped.
#[async_trait]
pub trait Running: Send {
    /// The next report. Safe to drop and call again; not called again after [`Event::Ended`].
    async fn next(&mut self) -> Event;

    /// Whether the job has asked for another process in the place of its own.
    fn refreshes(&self) -> bool {
        false
    }

    /// Asks the job to stop. It still ends with [`Event::Ended`].
    fn cancel(&mut self);
}
