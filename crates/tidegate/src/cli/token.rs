//! The arguments of `tidegate token`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tidegate_core::Account;

/// Create API tokens
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    New(NewTokenArgs),
}

/// Create a token and print it once.
///
/// The server stores only its hash, a line of `--tokens-file`.
#[derive(Debug, Args)]
pub(crate) struct NewTokenArgs {
    /// Account of the token: 1 to 64 letters, digits, `_`, `.` and `-`. Jobs belong to the account,
    /// not to the token
    #[arg(long, value_name = "NAME", value_parser = Account::parse)]
    pub(crate) account: Account,
    /// Allow the token to shut down the server and to see the jobs of all accounts
    #[arg(long)]
    pub(crate) admin: bool,
    /// Append the hash to this file instead of printing it; the file is created if it does not exist
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}
