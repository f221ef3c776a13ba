//! Errors for the user: what was wrong, and how to fix it.

use std::io::Write;
use std::process::ExitCode;

use crate::exit;

/// A mistake in the command line or the configuration.
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

    /// Not a mistake of the user: the same command may succeed later.
    pub(crate) fn transient(mut self) -> Self {
        self.code = exit::FAILED;
        self
    }

    /// How to fix it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The exit code of the program.
    pub(crate) fn exit_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// The hint of an error, if it is a usage error and has one.
    pub(crate) fn hint_of(error: &anyhow::Error) -> Option<&str> {
        error.downcast_ref::<Self>()?.hint.as_deref()
    }
}

/// Prints the error with its causes, and returns its exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if let Some(error) = error.downcast_ref::<clap::Error>() {
        error.print().ok();
        // `--help` and `--version` arrive here too.
        return ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 });
    }
    let mut err = std::io::stderr().lock();
    let usage = error.downcast_ref::<UsageError>();
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    // Ignored, because stderr may be closed.
    writeln!(err, "error: {}", causes.join("\n  caused by: ")).ok();
    if let Some(hint) = UsageError::hint_of(error) {
        writeln!(err, "  try: {hint}").ok();
    }
    ExitCode::from(usage.map_or(exit::FAILED, |usage| usage.code))
}
