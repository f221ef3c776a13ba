//! How the program says that something went wrong: what happened, and what to do about it.

use std::io::Write;
use std::process::ExitCode;

use crate::exit;

/// A mistake on the caller's side, which asking again will not mend.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct UsageError {
    message: String,
    hint: Option<String>,
    code: u8,
}

impl UsageError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
            code: exit::USAGE,
        }
    }

    /// Not a mistake after all: asking again may help.
    pub(crate) fn transient(mut self) -> Self {
        self.code = exit::FAILED;
        self
    }

    /// What the caller can do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Writes the error with its causes, and gives the exit code that fits.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(error) = error.downcast_ref::<clap::Error>() {
        error.print().ok();
        // Help and version are answers, not mistakes.
        return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
    }
    let mut err = std::io::stderr().lock();
    let usage = error.downcast_ref::<UsageError>();
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    // Nobody is left to tell when stderr is closed.
    writeln!(err, "error: {}", causes.join("\n  because ")).ok();
    if let Some(hint) = usage.and_then(|usage| usage.hint.as_deref()) {
        writeln!(err, "  try: {hint}").ok();
    }
    ExitCode::from(usage.map_or(exit::FAILED, |usage| usage.code))
}
