//! The job service: accepts jobs, runs each with an executor, and is the only crate that changes a
//! job's status.
//!
//! [`JobService`] is the entry point. Each accepted job has one task, its `tracker`, that writes
//! the [`Job`]; callers, streams and webhooks read it. This crate knows neither HTTP status codes
//! nor the formats of the APIs.

mod attempts;
mod audit;
mod begun_jobs;
mod cluster;
mod config;
mod files;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod input;
mod inspect;
mod job;
mod job_io;
mod job_service;
mod metrics;
mod models;
mod open_jobs;
mod registry;
mod run;
mod run_blocking;
mod snapshot;
mod stream;
mod submit;
mod waiting;
mod webhook;

use tidegate_core::random;

pub use begun_jobs::{BegunJob, BegunJobsFollower};
pub use cluster::{
    ApiReplicas, CallError, Cluster, ClusterMetrics, ClusterMonitor, ClusterSettings, ClusterState,
    ClusterUpkeep, DirectorCalls, DirectorSightings, LeaseRequestResult, LeaseTokens,
    LinkedMessage, MessageLinks, ModelCatalog, ModelQueueUsage, QueueDirectory, QueuedMarks,
    SeenDirector, SeenReplica, StreamUrls, TrainedCatalog,
};
pub use config::{Config, Deps, JobSettings, OnLost, RendererFactory};
pub use files::store::{
    ContentCopyError, FileLimits, FileMetadata, FileStore, FileStoreError, FileWriter,
    MemoryFileIndex, PublishedFile, Spool,
};
pub use files::{
    Files, InputDownloadError, InputDownloads, MAX_INLINE_FILE, OutputUpload, OutputUploads,
    file_name_for_mime, file_name_of_url, free_space,
};
pub use input::{ModelSchema, closest_name};
pub use inspect::{QueueCounts, QueueStatus};
pub use job::{Job, JobTimes};
pub use job_io::{JobIo, PreparedInput};
pub use job_service::JobService;
pub use metrics::{AttemptResult, JobMetrics, RefusalReason};
pub use models::trained::{
    SourceChanges, TrainedModel, TrainedServing, TrainedUpdater, TrainedVersions, Training,
    VersionCreation, VersionError, VersionMaker, WeightsSource, weights_path,
};
pub use models::{ModelRegistry, NoExecutor, ServedModel, ServedVersion};
pub use run::{LeasedRun, OnRefused, Resumed, RunOutcome};
pub use snapshot::{
    JobChange, JobRestarted, OutputCursor, OutputDelta, OutputEvent, OutputEvents, ReadPosition,
    Snapshot, TerminalState,
};
pub use stream::{StreamBatch, StreamEvent, StreamReader, StreamRefusal};
pub use submit::{OnDuplicateId, ResponseMode, Submission, Submitted, Ticket};
pub use waiting::loading::ServiceLookup;
pub use webhook::{
    Attempt, DeliveryLog, DeliveryRecord, DeliveryState, EventFilter, InterimMessages, ReplayError,
    SecretError, Webhook, WebhookEvent, WebhookRenderer, WebhookSecrets,
};
