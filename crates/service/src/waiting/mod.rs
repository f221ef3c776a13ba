//! Jobs that wait for the model: where they are kept, how much memory their inputs take, and the loop
//! that starts the next one when the executor has capacity.
//!
//! The order is decided by the queue port; this module holds what the queue entries refer to.

pub(crate) mod claims;
mod director;
pub(crate) mod entries;
pub(crate) mod input_memory;
mod job_handles;
pub(crate) mod loading;
mod lookup;
mod orphans;
pub(crate) mod queue_names;
mod reload_input;
pub(crate) mod stored_job;
pub(crate) mod waiting_jobs;
