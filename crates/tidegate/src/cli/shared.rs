//! Arguments that several commands have: listening, access, webhooks, lost jobs.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args, ValueEnum};
use tidegate_http::access::{AllowedHost, AllowedOrigin};
use tidegate_net::AllowedNetworks;

use super::heading;
use crate::files_store::FilesStoreUrl;
use crate::units;

/// Where a server listens, and which clients it accepts.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::LISTENING)]
pub(crate) struct ListenArgs {
    /// Address to listen on; `0.0.0.0` listens on all networks and needs tokens or --allow-anonymous
    #[arg(
        long,
        alias = "rp_api_host",
        env = "TIDEGATE_HOST",
        default_value = "127.0.0.1"
    )]
    pub(crate) host: String,
    /// Port to listen on; 0 selects a free port
    #[arg(long, alias = "rp_api_port", short, env = "PORT", default_value = "5000", value_parser = units::port)]
    pub(crate) port: u16,
    /// Listen on this Unix socket as well; its clients are never local administrators
    #[arg(long, env = "TIDEGATE_SOCKET", value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Serve HTTPS with this certificate chain (PEM); requires --tls-key
    #[arg(long, env = "TIDEGATE_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, env = "TIDEGATE_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Accept only clients with a token from this file, with lines `sha256:HASH ACCOUNT [admin]`.
    /// SIGHUP reloads it. TIDEGATE_API_TOKENS contains tokens themselves, as `token:account,…`
    #[arg(long, env = "TIDEGATE_TOKENS_FILE", value_name = "FILE", help_heading = heading::ACCESS)]
    pub(crate) tokens_file: Option<PathBuf>,
    /// Accept clients without a token, also from other machines
    #[arg(long, env = "TIDEGATE_ALLOW_ANONYMOUS", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new(), help_heading = heading::ACCESS)]
    pub(crate) allow_anonymous: bool,
    /// Name of the server in the URLs of its clients; can be given several times, and `*` accepts every
    /// name. Without tokens, requests for other names are refused, except for IP addresses, `localhost`
    /// and the host of --public-url
    #[arg(long = "allow-host", env = "TIDEGATE_ALLOW_HOST", value_name = "NAME", value_delimiter = ',', value_parser = AllowedHost::parse, help_heading = heading::ACCESS)]
    pub(crate) allowed_hosts: Vec<AllowedHost>,
    /// Origin of web pages that may call the server, such as `https://app.example.com`; can be given
    /// several times, and `*` accepts every page [default: none, CORS is disabled]
    #[arg(long = "allow-origin", env = "TIDEGATE_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',', value_parser = AllowedOrigin::parse, help_heading = heading::ACCESS)]
    pub(crate) allowed_origins: Vec<AllowedOrigin>,
}

/// How a server sends webhooks.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::WEBHOOKS)]
pub(crate) struct WebhookArgs {
    /// File with the secrets that sign webhooks, one `whsec_…` per line. SIGHUP reloads it.
    /// TIDEGATE_WEBHOOK_SECRET contains the secrets themselves
    #[arg(long, env = "TIDEGATE_WEBHOOK_SECRET_FILE", value_name = "FILE")]
    pub(crate) webhook_secret_file: Option<PathBuf>,
    /// Retry the final webhook of a job for this long
    #[arg(long, env = "TIDEGATE_WEBHOOK_RETRY_FOR", value_name = "DURATION", default_value = "24h", value_parser = units::duration)]
    pub(crate) webhook_retry_for: Duration,
    /// Time of one attempt to send a webhook. After twice this time, another process sends the webhooks of
    /// one that was killed
    #[arg(long, env = "TIDEGATE_WEBHOOK_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = units::positive_duration)]
    pub(crate) webhook_timeout: Duration,
    /// Private networks that webhooks and downloads of inputs may reach: networks or addresses such
    /// as `10.0.0.0/8,192.168.1.20`, or `all` [default: none, only public addresses]
    #[arg(long, env = "TIDEGATE_ALLOW_PRIVATE_NETWORKS", value_name = "LIST", default_value = "", hide_default_value = true, value_parser = AllowedNetworks::parse)]
    pub(crate) allow_private_networks: AllowedNetworks,
}

/// Where the files of Replicate's API are stored, and for how long.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::FILES)]
pub(crate) struct FileStoreArgs {
    /// Storage for uploaded files and output files of Replicate's API: `s3://BUCKET[/PREFIX]`, with
    /// credentials from the AWS_… variables, or `file:///FOLDER` [default: the data directory]
    #[arg(long, env = "TIDEGATE_FILES_STORE", value_name = "URL")]
    pub(crate) files_store: Option<FilesStoreUrl>,
    /// Keep files that clients upload with Replicate's API for this long
    #[arg(long, env = "TIDEGATE_KEEP_FILES_FOR", value_name = "DURATION", default_value = "24h", value_parser = units::positive_duration)]
    pub(crate) keep_files_for: Duration,
    /// Total size of the uploaded files and trained weights of one account [default: no limit]
    #[arg(long, env = "TIDEGATE_MAX_STORED_FILES", value_name = "SIZE", value_parser = units::size)]
    pub(crate) max_stored_files: Option<usize>,
}

/// What happens to a job that was running when the process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLostArg {
    /// Run it again
    Retry,
    /// Mark it as failed
    Fail,
}
