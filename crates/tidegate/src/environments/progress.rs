//! Shows the progress of an installation: a spinner on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{LogFormat, ProgressMode};

/// The most characters of a line next to the spinner.
const SPINNER_WIDTH: usize = 60;

/// Where the progress of an installation is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstallProgress {
    Spinner,
    Lines,
    Log,
}

impl InstallProgress {
    pub(crate) fn new(mode: ProgressMode, format: LogFormat) -> Self {
        match (mode, format) {
            (ProgressMode::None, _) | (_, LogFormat::Json) => Self::Log,
            (ProgressMode::Auto, LogFormat::Console) if std::io::stderr().is_terminal() => {
                Self::Spinner
            }
            (ProgressMode::Auto | ProgressMode::Plain, LogFormat::Console) => Self::Lines,
        }
    }

    /// Shows a line of our own.
    pub(super) fn announce(self, line: &str) {
        match self {
            Self::Log => tracing::info!("{line}"),
            // Ignored, because stderr may be closed.
            Self::Spinner | Self::Lines => {
                writeln!(std::io::stderr().lock(), "{line}").unwrap_or(())
            }
        }
    }

    /// Starts to show the output of an installer.
    pub(super) fn start(self, text: &str) -> InstallerOutput {
        let spinner = (self == Self::Spinner).then(|| {
            let style = ProgressStyle::with_template("  {spinner} {prefix} {elapsed} {msg}")
                .expect("the template is fixed");
            let spinner = ProgressBar::new_spinner().with_style(style);
            spinner.set_prefix(text.to_owned());
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        if spinner.is_none() {
            self.announce(&format!("  {text}"));
        }
        InstallerOutput {
            progress: self,
            spinner,
        }
    }
}

/// The output of a running installer. The spinner disappears when it is dropped.
pub(super) struct InstallerOutput {
    progress: InstallProgress,
    spinner: Option<ProgressBar>,
}

impl InstallerOutput {
    /// Shows a line that the installer printed.
    pub(super) fn line(&self, line: &str) {
        match &self.spinner {
            Some(spinner) => {
                spinner.set_message(line.chars().take(SPINNER_WIDTH).collect::<String>())
            }
            None => self.progress.announce(&format!("  | {line}")),
        }
    }
}

impl Drop for InstallerOutput {
    fn drop(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}
