//! `tidegate token new`: creates a token for an account. It is printed once; the server stores its hash.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_http::access::Role;

use crate::cli::{NewTokenArgs, TokenArgs, TokenCommand};
use crate::tokens;

/// The prefix of every token, by which secret scanners recognize it.
const PREFIX: &str = "tg_";

pub(crate) fn token(args: &TokenArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        TokenCommand::New(args) => new(args),
    }
}

fn new(args: &NewTokenArgs) -> anyhow::Result<ExitCode> {
    let mut bytes = [0; 24];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow!("failed to get random bytes from the system: {error}"))?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
    let line = tokens::line(
        &token,
        &args.account,
        if args.admin { Role::Admin } else { Role::User },
    );
    // Before the token is printed, so that a printed token works.
    if let Some(file) = &args.file {
        tokens::append(file, &line)?;
    }
    writeln!(std::io::stdout().lock(), "{token}").context("failed to print the token")?;
    let mut err = std::io::stderr().lock();
    // Ignored, because stderr may be closed.
    match &args.file {
        Some(file) => writeln!(
            err,
            "created a token for `{}`; it is not shown again. Its hash was added to {1}\n  next: tidegate serve DIR --tokens-file {1}, or send SIGHUP to a running server",
            args.account,
            file.display()
        ),
        None => writeln!(err, "created a token for `{}`; it is not shown again. Add this line to the --tokens-file of the server:\n{line}", args.account),
    }
    .ok();
    Ok(ExitCode::SUCCESS)
}
