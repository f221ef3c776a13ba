//! Parts of the command line that several commands have: where a server listens and whom it lets in, and how it
//! sends webhooks.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use tidegate_net::AllowedNetworks;

use crate::units;

/// Where a server listens, and whom it lets in.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListenArgs {
    /// The address to listen on; `0.0.0.0` for every network, which needs tokens or
    /// --allow-anonymous
    #[arg(
        long,
        alias = "rp_api_host",
        env = "TIDEGATE_HOST",
        default_value = "127.0.0.1"
    )]
    pub(crate) host: String,
    /// The port to listen on; 0 for any free one
    #[arg(long, alias = "rp_api_port", short, env = "PORT", default_value = "5000", value_parser = units::port)]
    pub(crate) port: u16,
    /// Only callers with a token from this file are let in: lines `sha256:HASH ACCOUNT [admin]`, read
    /// again on SIGHUP [env: TIDEGATE_API_TOKENS has `token:account,…`]
    #[arg(long, env = "TIDEGATE_TOKENS_FILE", value_name = "FILE")]
    pub(crate) tokens_file: Option<PathBuf>,
    /// Let everybody who reaches the address call, also from other machines
    #[arg(long, env = "TIDEGATE_ALLOW_ANONYMOUS", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub(crate) allow_anonymous: bool,
    /// Serve HTTPS with this certificate (PEM, with those that vouch for it); needs --tls-key
    #[arg(long, env = "TIDEGATE_TLS_CERT", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, env = "TIDEGATE_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
}

/// How webhooks are sent.
#[derive(Debug, Clone, Args)]
pub(crate) struct WebhookArgs {
    /// Private networks that webhooks and downloads of inputs may reach: networks or addresses such as
    /// `10.0.0.0/8,192.168.1.20`, or `all` [default: none, only public addresses are called]
    #[arg(long, env = "TIDEGATE_ALLOW_PRIVATE_NETWORKS", value_name = "LIST", default_value = "", hide_default_value = true, value_parser = AllowedNetworks::parse)]
    pub(crate) allow_private_networks: AllowedNetworks,
    /// A file with the secrets that sign webhooks, one `whsec_…` per line; it is read again on SIGHUP
    /// [env: TIDEGATE_WEBHOOK_SECRET holds secrets themselves]
    #[arg(long, env = "TIDEGATE_WEBHOOK_SECRET_FILE", value_name = "FILE")]
    pub(crate) webhook_secret_file: Option<PathBuf>,
    /// How long the last webhook of a prediction is sent again when its receiver does not take it
    #[arg(long, env = "TIDEGATE_WEBHOOK_RETRY_FOR", value_name = "DURATION", default_value = "24h", value_parser = units::duration)]
    pub(crate) webhook_retry_for: Duration,
}
