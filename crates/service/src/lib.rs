//! The desk: takes jobs in, gives each to an executor, and is the only place that moves a job's
//! status.
//!
//! [`Jobs`] is the door. Behind it, each accepted job has one task, its `tracker`, that writes the
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

pub use cabinet::{Cabinet, FileRules, Filed, FilingError, Incoming, Label};
pub use carrier::{Carried, Carrier};
pub use config::{Config, OnLost, Tools, WordingOf};
pub use files::{Files, MAX_INLINE_FILE, file_name_for, room_in};
pub use input::ModelSchema;
pub use job::Job;
pub use jobs::Jobs;
pub use meter::{AttemptResult, Meter, Reason};
pub use models::{Model, Models, Nobody, Version};
pub use resume::Resumed;
pub use seeing::{Queue, Share};
pub use snapshot::{Progress, Seen, Snapshot, Terminal};
pub use stream::{Reader, StreamEvent, StreamRefusal, Streamed};
pub use submission::{Delivery, Replay, Submission, Submitted, Ticket};
pub use trained::{Register, Trained, Weights};
pub use training::{Training, Unmade, VersionMaker};
pub use tuned::Tuned;
pub use webhook::{
    Attempt, BadSecret, Deliveries, DeliveryRecord, DeliveryState, EventFilter, NotReplayed, Pace,
    Secrets, Webhook, WebhookEvent, Wording,
};
