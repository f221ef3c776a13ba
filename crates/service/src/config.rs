//! The settings of the job service, and the parts that it works with.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::queue::Queue;
use tidegate_core::record::{Api, Target, WebhookSpec};
use tidegate_core::store::Store;
use tidegate_core::{JobKind, Refusal};
use tidegate_net::Client;

use crate::cluster::Cluster;
use crate::files::Files;
use crate::input::CheckedInput;
use crate::webhook::{WebhookRenderer, WebhookSecrets};

/// The settings of the job services of a server.
pub struct Config {
    /// The bearer token sent with every webhook.
    pub webhook_token: Option<String>,
    /// The secrets that sign every webhook.
    pub webhook_secrets: WebhookSecrets,
    /// The shortest pause between interim webhooks of a job.
    pub webhook_throttle: Duration,
    /// How long the terminal webhook of a job is retried.
    pub webhook_retry_for: Duration,
    /// How many bytes of the inputs of waiting jobs are held in memory. Above it they stay in the store
    /// only; without a store no more jobs are accepted.
    pub waiting_memory: usize,
    /// The settings that apply to each job.
    pub jobs: JobSettings,
}

/// The settings that apply to each job.
#[derive(Clone)]
pub struct JobSettings {
    /// How many events of a stream are kept for late readers.
    pub stream_history: usize,
    /// How long an ended job can be looked up.
    pub keep_for: Duration,
    /// How long input, output and logs of an ended job are kept; as long as the job by default.
    pub keep_data_for: Option<Duration>,
    /// Which function of the model predictions call, which decides what input they take.
    pub predictions_are: JobKind,
    /// The longest time that the model may run one job.
    pub job_timeout: Option<Duration>,
    /// The largest output of one job, all values together, in bytes.
    pub max_output: usize,
    /// What happens to jobs that were running when the server died.
    pub on_lost: OnLost,
    /// Renders jobs for webhooks that are resumed after a restart.
    pub renderer: RendererFactory,
}

/// Gives the renderer that an API uses for this webhook of a job with this target.
pub type RendererFactory = Arc<dyn Fn(Api, &Target, &WebhookSpec) -> WebhookRenderer + Send + Sync>;

/// What happens to a job that was running when the server died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLost {
    /// It fails.
    Fail,
    /// It runs again.
    Retry {
        /// How many times it may be started in all.
        attempts: u32,
    },
}

/// The parts that the job services of a server work with.
#[derive(Clone)]
pub struct Deps {
    /// Fetches input files and publishes output files.
    pub files: Files,
    /// The outbound HTTP client.
    pub net: Arc<Client>,
    /// Names a new directory for the files of a job.
    pub scratch: Arc<dyn Fn() -> PathBuf + Send + Sync>,
    /// How many bytes may be written there, if that is known.
    pub free_space: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
    /// Inputs with more bytes than this are passed to the child in a file.
    pub spill_above: usize,
    /// The queues that jobs wait in.
    pub queue: Arc<dyn Queue>,
    /// The store of job records; without it jobs exist in memory only.
    pub store: Option<Arc<dyn Store>>,
    /// The other processes of the cluster, if directors run the jobs.
    pub cluster: Option<Cluster>,
}

impl Deps {
    /// Refuses a job whose files do not fit on the disk. Jobs without files are not checked.
    pub(crate) fn check_free_space(&self, checked: &CheckedInput) -> Result<(), Refusal> {
        let spilled = if checked.json.len() > self.spill_above {
            checked.json.len()
        } else {
            0
        };
        if checked.files.is_empty() && spilled == 0 {
            return Ok(());
        }
        // A download has at least one byte.
        let needed = (checked.file_bytes + spilled as u64).max(1);
        match (self.free_space)() {
            Some(free) if free < needed => {
                tracing::warn!(free, needed, "refused job: no space for its files");
                Err(Refusal::NoSpace)
            }
            Some(_) | None => Ok(()),
        }
    }
}
