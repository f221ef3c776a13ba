//! The arguments of the commands that inspect a running server: `ps`, `logs`, `cancel`, `replay`.

use std::path::PathBuf;

use clap::Args;

/// The address of a running server, and the token for it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConnectArgs {
    /// URL of the server
    #[arg(
        long,
        env = "TIDEGATE_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:5000"
    )]
    pub(crate) url: String,
    /// File that contains the token for the server; TIDEGATE_API_TOKEN contains the token itself
    #[arg(long, env = "TIDEGATE_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// Which certificate of an https server is accepted.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TrustArgs {
    /// PEM file with the certificate of an https server, or of the authority that issued it
    /// [default: the certificates of the system]
    #[arg(
        long,
        env = "SSL_CERT_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    pub(crate) ca: Option<PathBuf>,
    /// Accept every certificate of an https server, without checking who it is
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// Show the models, processes, queues and jobs of a running server.
///
/// Lists the models with their processes and queues, then waiting and running jobs, newest first. With an admin token the list has the processes and the jobs of all accounts, otherwise the jobs of your account.
#[derive(Debug, Clone, Args)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// List finished jobs as well, as long as the server keeps them
    #[arg(long, short)]
    pub(crate) all: bool,
    /// List only jobs of this account; `~` is the anonymous account
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
    /// List only this model and its jobs: OWNER/NAME, NAME or the name of an endpoint
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) model: Option<String>,
    /// Maximum number of jobs
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Print the server's responses as one JSON object
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) json: bool,
    /// Print only the ids of the jobs, as for `tidegate cancel $(tidegate ps -q)`
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Print the logs of a job or a model of a running server.
///
/// The logs of a model are those of its setup, which need an admin token, and those of its newest jobs. Without a name, those of all models are printed. If there are several sources, each line begins with the name of its own.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Job id, or enough of its first characters; or a model, as OWNER/NAME or NAME
    #[arg(value_name = "ID|MODEL")]
    pub(crate) target: Option<String>,
    /// Print new lines: of a job until it ends, where the exit code is 0 if it succeeded and otherwise 1; of a model until the server exits
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Print only the last lines of what there is already
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
    /// Account of the job, if several accounts have a job with this id, or whose jobs are printed; `~` is the anonymous account
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
}

/// Cancel jobs of a running server.
///
/// The command prints the ids of the canceled jobs.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Job ids, or enough of their first characters
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Account of the jobs, if several accounts have a job with this id; `~` is the anonymous account
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
}

/// Make a running server send the final webhook of a job again.
///
/// The message keeps its webhook-id.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Id of the webhook message, `msg_…`, or enough of its first characters; GET /admin/deliveries lists them
    #[arg(value_name = "WEBHOOK_ID")]
    pub(crate) id: String,
}
