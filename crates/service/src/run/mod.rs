//! A running job: the tracker task that owns it, the deadlines that stop it, the record of its begin and
//! end in the store, and what happens to jobs that a previous server process left unfinished.

pub(crate) mod deadlines;
pub(crate) mod finish;
pub(crate) mod job_spans;
pub(crate) mod leased;
pub(crate) mod load_open_jobs;
mod outputs;
pub(crate) mod recorder;
mod resume;
mod retention;
mod started;
pub(crate) mod tracker;

pub use finish::RunOutcome;
pub use leased::{LeasedRun, OnRefused};
pub use resume::Resumed;
