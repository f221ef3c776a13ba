//! What the desk is told, and what it works with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::port::Executor;
use tidegate_core::queue::Queue;
use tidegate_core::record::{Api, Target, WebhookSpec};
use tidegate_core::store::Store;
use tidegate_core::{JobKind, Refusal};
use tidegate_net::Client;

use crate::files::Files;
use crate::input::Checked;
use crate::webhook::{Secrets, WebhookRenderer};

/// How the desk is set up.
pub struct Config {
    /// Sent as a bearer token with every webhook.
    pub webhook_token: Option<String>,
    /// Sign every webhook.
    pub webhook_secrets: Secrets,
    /// Webhooks about logs come at most this often.
    pub webhook_throttle: Duration,
    /// How long the last webhook of a job is sent again.
    pub webhook_retry_for: Duration,
    /// How many events of a stream are kept for late readers.
    pub stream_history: usize,
    /// How long a job that is over can still be looked up.
    pub keep_for: Duration,
    /// How long input, output and logs of a job that is over are kept; as long as the job if it is not said.
    pub keep_data_for: Option<Duration>,
    /// Which of the model's functions predictions are for, and so which inputs they take.
    pub predictions_are: JobKind,
    /// The longest that the model may work on one job.
    pub job_timeout: Option<Duration>,
    /// The most that one job may give, all its values together, in bytes.
    pub max_output: usize,
    /// How many bytes of the inputs of jobs that wait in a line are held in memory. Above it they are in the store
    /// only; without a store no more are taken.
    pub waiting_memory: usize,
    /// Which model this is.
    pub target: Target,
    /// What becomes of jobs that the model worked on when the server died.
    pub on_lost: OnLost,
    /// How a face writes a job, for webhooks of jobs that are taken up again.
    pub renderer: RendererFactory,
}

/// How a face writes a job for this receiver.
pub type RendererFactory = Arc<dyn Fn(Api, &WebhookSpec) -> WebhookRenderer + Send + Sync>;

/// What becomes of a job that the model worked on when the server died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLost {
    /// It has failed.
    Fail,
    /// It is run again, up to this many times in all.
    Retry {
        /// Times that it may be given to a model.
        attempts: u32,
    },
}

/// What the desk works with.
#[derive(Clone)]
pub struct Deps {
    /// Runs the jobs.
    pub executor: Arc<dyn Executor>,
    /// Gets files in and out.
    pub files: Files,
    /// The way out.
    pub net: Arc<Client>,
    /// Names a place for the files of a job.
    pub scratch: Arc<dyn Fn() -> PathBuf + Send + Sync>,
    /// How many bytes may be written there, if that is known.
    pub room: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
    /// Inputs of more bytes than this pass through a file.
    pub spill_above: usize,
    /// The lines that jobs wait in.
    pub queue: Arc<dyn Queue>,
    /// Where jobs are written down; without it they live in memory only.
    pub store: Option<Arc<dyn Store>>,
}

impl Deps {
    /// Refuses a job whose files do not fit on the disk. Most jobs have none and are not asked.
    pub(crate) fn room_for(&self, checked: &Checked) -> Result<(), Refusal> {
        let spilled = if checked.json.len() > self.spill_above {
            checked.json.len()
        } else {
            0
        };
        if checked.files.is_empty() && spilled == 0 {
            return Ok(());
        }
        // What is downloaded has at least a byte.
        let needed = (checked.file_bytes + spilled as u64).max(1);
        match (self.room)() {
            Some(room) if room < needed => {
                tracing::warn!(
                    room,
                    needed,
                    "no space for the files of a job: it was refused"
                );
                Err(Refusal::NoSpace)
            }
            Some(_) | None => Ok(()),
        }
    }
}
