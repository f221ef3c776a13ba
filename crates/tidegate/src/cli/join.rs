//! The arguments with which `tidegate serve` joins routers.

use std::path::PathBuf;

use clap::Args;
use tidegate_net::Url;

use super::heading;
use crate::replicate_setup;

/// The routers that a server joins.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = heading::JOIN)]
pub(crate) struct JoinArgs {
    /// URL of a `tidegate router` that sends requests to this server while its models are ready; can be
    /// given several times
    #[arg(long = "join", env = "TIDEGATE_JOIN", value_name = "URL", value_delimiter = ',', value_parser = replicate_setup::public_url)]
    pub(crate) routers: Vec<Url>,
    /// File with the join key of the routers. TIDEGATE_JOIN_KEY contains the key itself
    #[arg(
        long = "join-key-file",
        env = "TIDEGATE_JOIN_KEY_FILE",
        value_name = "FILE"
    )]
    pub(crate) key_file: Option<PathBuf>,
    /// URL at which the routers reach this server [default: --public-url, or the address it listens on;
    /// for all networks, the address that the routers see]
    #[arg(long = "join-url", env = "TIDEGATE_JOIN_URL", value_name = "URL", value_parser = replicate_setup::public_url)]
    pub(crate) url: Option<Url>,
    /// Model of the routers that this server serves; can be given several times [default: the names of
    /// its own models]
    #[arg(
        long = "join-model",
        env = "TIDEGATE_JOIN_MODEL",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub(crate) models: Vec<String>,
}
