//! `tidegate token new`: a token for one account. It is shown once; the server knows its hash.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate_http::access::Role;

use crate::cli::{NewTokenArgs, TokenArgs, TokenCommand};
use crate::tokens;

/// What every token begins with, so that those who look for leaked secrets know it.
const PREFIX: &str = "tg_";

pub(crate) fn token(args: &TokenArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        TokenCommand::New(args) => new(args),
    }
}

fn new(args: &NewTokenArgs) -> anyhow::Result<ExitCode> {
    let mut bits = [0; 24];
    getrandom::fill(&mut bits)
        .map_err(|error| anyhow!("the system gives no random bits: {error}"))?;
    let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bits));
    let line = tokens::line(
        &token,
        &args.account,
        if args.admin { Role::Admin } else { Role::User },
    );
    // Before anybody sees the token: one that is shown is one that works.
    if let Some(file) = &args.file {
        tokens::append(file, &line)?;
    }
    writeln!(std::io::stdout().lock(), "{token}").context("could not print the token")?;
    let mut err = std::io::stderr().lock();
    // Nobody is left to tell when stderr is closed.
    match &args.file {
        Some(file) => writeln!(
            err,
            "the token of `{}`, shown once; its hash is in {1}\n  next: tidegate serve DIR --tokens-file {1}, or SIGHUP to a server that runs",
            args.account,
            file.display()
        ),
        None => writeln!(err, "the token of `{}`, shown once; the line for the server's --tokens-file:\n{line}", args.account),
    }
    .ok();
    Ok(ExitCode::SUCCESS)
}
