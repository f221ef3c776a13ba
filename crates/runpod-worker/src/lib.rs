//! A Runpod worker: fetches jobs from a platform, runs them on an executor, and delivers the results.
//!
//! [`RunpodWorker`] is the entry point. It uses the executor directly and not the job service: the
//! service keeps the latest state of a job for many readers, while here one receiver needs every report
//! in order, and a slow receiver must slow down the model. This crate does not know Python; the
//! [`JobCodec`] interprets inputs and outputs.

mod backoff;
mod codec;
mod delivery;
mod execute;
mod in_flight;
mod job_runner;
mod journal;
mod platform_client;
mod platform_urls;
mod poll;
mod run_once;
mod wire;
mod worker;

pub use codec::{DecodedJob, EmptyObject, HandlerSemantics, JobCodec, Refresh, StreamResult};
pub use journal::{Journal, JournalError};
pub use platform_client::{PlatformClient, SDK_VERSION};
pub use platform_urls::{
    InvalidUrlTemplate, OutputDelivery, PlatformUrls, UrlTemplates, WorkerLoad,
};
pub use run_once::run_once;
pub use wire::{Job, JobDone};
pub use worker::{Config, ExitReason, OnInterruptedJob, RunpodWorker, WorkerDeps};
