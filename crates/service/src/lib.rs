//! The desk: takes jobs in, gives each to an executor, and is the only place that moves a job's
//! status.
//!
//! [`JobService`] is the door. Behind it, each accepted job has one task, its `tracker`, that writes the
//! [`Job`]; callers, streams and webhooks read it. Nothing here knows HTTP's status codes or which
//! dialect a request came in.

mod audit;
mod cabinet;
mod carrier;
mod config;
mod deadline;
mod director;
mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod hands;
mod heavy;
mod input;
mod job;
mod jobs;
mod keeper;
mod keeping;
mod meter;
mod models;
mod parking;
mod random;
mod recall;
mod registry;
mod resume;
mod room;
mod seeing;
mod snapshot;
mod started;
mod stream;
mod submission;
mod succession;
mod taking;
mod tracker;
mod trained;
mod training;
mod tuned;
mod upkeep;
mod webhook;

pub use cabinet::{FileMetadata, FileRules, FileStore, FileStoreError, FileWriter, StoredFile};
pub use carrier::{JobIo, PreparedInput};
pub use config::{Config, Deps, OnLost, RendererFactory};
pub use files::{Files, MAX_INLINE_FILE, file_name_for, room_in};
pub use input::ModelSchema;
pub use job::Job;
pub use jobs::JobService;
pub use meter::{AttemptResult, JobMetrics, RefusalReason};
pub use models::{ModelRegistry, NoExecutor, ServedModel, ServedVersion};
pub use resume::Resumed;
pub use seeing::{AccountShare, QueueStatus};
pub use snapshot::{OutputDelta, ReadPosition, Snapshot, TerminalState};
pub use stream::{StreamEvent, StreamReader, StreamRefusal, Streamed};
pub use submission::{OnDuplicateId, ResponseMode, Submission, Submitted, Ticket};
pub use trained::{TrainedVersion, TrainedVersions, Weights};
pub use training::{Training, VersionError, VersionMaker};
pub use tuned::Tuned;
pub use webhook::{
    Attempt, BadSecret, DeliveryLog, DeliveryRecord, DeliveryState, EventFilter, ReplayError,
    Secrets, UpdatePolicy, Webhook, WebhookEvent, WebhookRenderer,
};
