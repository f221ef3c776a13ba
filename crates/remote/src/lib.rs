//! Workers elsewhere that come for jobs: an executor without a model of its own.
//!
//! A worker asks ([`Remote::take`]), gets jobs, and reports about them ([`Remote::hear`]). Behind the
//! port [`tidegate_core::port::Executor`] that looks like any other model: a place in a fair line, a job
//! that runs, events, an end. A worker that is lost costs its jobs nothing but time: they go to the next
//! worker, a bounded number of times, and nobody outside is told.
//!
//! Nothing here knows by which protocol workers talk. Whoever does calls the methods of [`Remote`].

mod early;
mod executor;
mod held;
mod ledger;
mod parcel;
mod remote;
mod reports;
#[cfg(test)]
mod tests;
mod worker;

pub use executor::MOST_AT_ONCE;
pub use parcel::Parcel;
pub use remote::{Config, Holds, Remote};
pub use reports::{EXECUTION_TIMEOUT, Finish, Heard, Report, note};
pub use worker::{Count, InvalidWorkerId, WorkerId};
