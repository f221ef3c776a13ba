//! What `predict` shows while a prediction runs: progress on a terminal, the logs, and streamed text.

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_runtime::{Observer, Phase};

/// Shows a prediction while it runs. Nothing but logs and streamed text is shown if stderr is not a
/// terminal.
pub(super) struct LiveOutput {
    /// What happens now, with its time.
    spinner: Mutex<Option<ProgressBar>>,
    /// Whether output and logs are shown as they arrive.
    is_streaming: AtomicBool,
}

impl LiveOutput {
    pub(super) fn new() -> Self {
        Self {
            spinner: Mutex::new(None),
            is_streaming: AtomicBool::new(false),
        }
    }

    /// Shows what happens from now on.
    pub(super) fn begin(&self, text: &'static str) {
        self.stop();
        if !std::io::stderr().is_terminal() {
            return;
        }
        let spinner = ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed}")
                .expect("the template is fixed"),
        );
        spinner.set_message(text);
        spinner.enable_steady_tick(Duration::from_millis(100));
        *self.lock() = Some(spinner);
    }

    /// Removes the progress from the terminal.
    pub(super) fn stop(&self) {
        if let Some(spinner) = self.lock().take() {
            spinner.finish_and_clear();
        }
    }

    /// Prints logs of the model.
    pub(super) fn log(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        // Ignored, because stderr may be closed.
        let print = || write!(std::io::stderr().lock(), "{text}").ok();
        match &*self.lock() {
            Some(spinner) => spinner.suspend(print),
            None => print(),
        };
    }

    /// From now on, output and logs are shown as they arrive.
    pub(super) fn start_streaming(&self) {
        self.is_streaming.store(true, Ordering::Relaxed);
    }

    /// Whether output and logs were shown as they arrived.
    pub(super) fn is_streaming(&self) -> bool {
        self.is_streaming.load(Ordering::Relaxed)
    }

    /// Prints a part of streamed text at once.
    pub(super) fn text(&self, text: &str) {
        self.stop();
        let mut out = std::io::stdout().lock();
        // Ignored, because the reader may close the pipe early.
        write!(out, "{text}").and_then(|()| out.flush()).ok();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        self.spinner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for LiveOutput {
    fn phase(&self, _child: usize, phase: Phase<'_>) {
        match phase {
            Phase::Loading { .. } => self.begin("loading the model"),
            Phase::Log { text, .. } => self.log(text),
            Phase::Ready { .. } => self.begin("running the prediction"),
            Phase::Failed { .. } | Phase::Died { .. } | Phase::Defunct { .. } => self.stop(),
        }
    }
}
