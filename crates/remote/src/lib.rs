//! An executor whose jobs run on remote Runpod workers.
//!
//! A worker fetches jobs ([`RemoteExecutor::take_jobs`]) and sends reports about them
//! ([`RemoteExecutor::apply_report`]). Behind the port [`tidegate_core::port::Executor`] this looks
//! like any other model: a fair queue, a running job, events, an end. When a worker is lost, its
//! jobs go to another worker, a bounded number of times; clients see only the delay.
//!
//! This crate does not know the workers' protocol. `runpod/platform/workers.rs` of the `http` crate
//! implements it and calls the methods of [`RemoteExecutor`].

mod admission;
mod apply_report;
mod assignment;
mod dispatch_state;
mod early_results;
mod event_queue;
mod executor;
mod heartbeat;
mod job_offer;
mod reports;
#[cfg(test)]
mod tests;
mod worker;

pub use admission::MAX_JOBS_PER_TAKE;
pub use executor::{Config, LongPollTimes, RemoteExecutor};
pub use job_offer::JobOffer;
pub use reports::{EXECUTION_TIMEOUT, JobReport, ReportOutcome, ReportRejection, WorkerResult};
pub use worker::{InvalidWorkerId, WorkerActivity, WorkerCounts, WorkerId, WorkerStatus};
