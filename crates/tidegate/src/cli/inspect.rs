//! The part of the command line that looks at a running server.

use std::path::PathBuf;

use clap::Args;

/// A server that runs, and how we are let in.
#[derive(Debug, Args)]
pub(crate) struct ConnectArgs {
    /// Where the server is
    #[arg(
        long,
        env = "TIDEGATE_URL",
        value_name = "URL",
        default_value = "http://127.0.0.1:5000"
    )]
    pub(crate) url: String,
    /// The token to send to the server, alone in a file [env: TIDEGATE_API_TOKEN has the token]
    #[arg(long, env = "TIDEGATE_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// List the jobs of a running server: those that wait and those that run, newest first.
///
/// With the token of an administrator these are the jobs of all accounts, otherwise those of one's own.
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// Show those that are over too, as long as the server keeps them
    #[arg(long, short)]
    pub(crate) all: bool,
    /// Only those of this account; `~` for those of nobody in particular
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
    /// Only those for this model
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) model: Option<String>,
    /// How many at most
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// Print the server's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print what a job of a running server has printed.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// The job
    pub(crate) id: String,
    /// Go on until the job is over; the exit code is 0 if it succeeded and 1 if not
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Whose job, if several accounts have one with this id; `~` for nobody in particular
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
}

/// Stop jobs of a running server. The ids of those that stop are printed.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// The jobs
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Whose jobs, if several accounts have one with this id; `~` for nobody in particular
    #[arg(long, value_name = "NAME")]
    pub(crate) account: Option<String>,
}

/// Have a running server send the last webhook of a job again, under the same webhook-id.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
    /// The message's own id, `msg_…`; GET /admin/deliveries lists them
    #[arg(value_name = "WEBHOOK_ID")]
    pub(crate) id: String,
}
