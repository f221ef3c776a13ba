//! A worker for somebody else's platform: fetches jobs by Runpod's protocol, runs them on an executor, and
//! brings back what came of them.
//!
//! [`RunpodWorker`] is the door. It talks to the executor directly and not through a desk: a desk keeps the newest
//! words of a job for whoever asks, and here every word must reach one listener in order, with the model
//! waiting when he is slow. Nothing here knows Python; what a returned value means is the [`JobCodec`]'s
//! business.

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
