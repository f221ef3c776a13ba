//! Workers elsewhere that come for jobs: an executor without a model of its own.
//!
//! A worker asks ([`RemoteExecutor::take`]), gets jobs, and reports about them ([`RemoteExecutor::hear`]). Behind the
//! port [`tidegate_core::port::Executor`] that looks like any other model: a place in a fair line, a job
//! that runs, events, an end. A worker that is lost costs its jobs nothing but time: they go to the next
//! worker, a bounded number of times, and nobody outside is told.
//!
//! Nothing here knows by which protocol workers talk. Whoever does calls the methods of [`RemoteExecutor`].

mod admission;
mod assignment;
mod dispatch_state;
mod early_results;
mod executor;
mod job_offer;
mod reports;
#[cfg(test)]
mod tests;
mod worker;

pub use admission::MAX_JOBS_PER_TAKE;
pub use executor::{Config, LongPollTimes, RemoteExecutor};
pub use job_offer::JobOffer;
pub use reports::{EXECUTION_TIMEOUT, JobReport, ReportOutcome, WorkerResult, note};
pub use worker::{InvalidWorkerId, WorkerCounts, WorkerId};
