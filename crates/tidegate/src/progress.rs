//! Shows the startup of a model on a terminal: each phase with its time, and the output of the setup.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_core::health::error_line;
use tidegate_runtime::{Observer, Phase, PoolEvent};

use crate::build_info;
use crate::cli::{LogFormat, ProgressMode};
use crate::model_source::ModelSource;

/// Shows the startup of the child processes of a model.
pub(crate) struct StartupProgress {
    output: ProgressOutput,
    /// The name of the model, if there are several.
    model: Option<String>,
    /// Shown while child 0 loads.
    spinner: Mutex<Option<ProgressBar>>,
    /// Returns the banner when all children are ready.
    on_ready: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Children that have never been ready.
    pending: AtomicUsize,
    /// Whether changed models are loaded again.
    watch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgressOutput {
    Spinner,
    Lines,
    Log,
}

impl StartupProgress {
    pub(crate) fn new(
        mode: ProgressMode,
        format: LogFormat,
        children: usize,
        on_ready: Box<dyn Fn() -> Option<String> + Send + Sync>,
    ) -> Self {
        let output = match (mode, format) {
            (ProgressMode::None, _) | (_, LogFormat::Json) => ProgressOutput::Log,
            (ProgressMode::Auto, LogFormat::Console) if std::io::stderr().is_terminal() => {
                ProgressOutput::Spinner
            }
            (ProgressMode::Auto | ProgressMode::Plain, LogFormat::Console) => ProgressOutput::Lines,
        };
        Self {
            output,
            model: None,
            spinner: Mutex::new(None),
            on_ready,
            pending: AtomicUsize::new(children),
            watch: false,
        }
    }

    /// The same for a server that loads changed models again.
    pub(crate) fn with_watch(self, watch: bool) -> Self {
        Self { watch, ..self }
    }

    /// The same for one model of several: lines with its name, without a spinner.
    pub(crate) fn of_model(self, name: &str) -> Self {
        let output = if self.output == ProgressOutput::Spinner {
            ProgressOutput::Lines
        } else {
            self.output
        };
        Self {
            output,
            model: Some(name.to_owned()),
            ..self
        }
    }

    /// Shows which model is served, and where.
    pub(crate) fn announce(&self, model: &ModelSource, url: &str) {
        let (dir, predictor) = (model.dir.display(), &model.predictor_ref);
        match self.output {
            ProgressOutput::Log => tracing::info!(%url, model = %dir, predictor, "listening"),
            ProgressOutput::Spinner | ProgressOutput::Lines => self.print(&format!(
                "tidegate {} · {dir} ({predictor}) · {url}",
                build_info::VERSION
            )),
        }
    }

    /// The same for several models.
    pub(crate) fn announce_all<'a>(&self, names: impl Iterator<Item = &'a str>, url: &str) {
        let names: Vec<&str> = names.collect();
        match self.output {
            ProgressOutput::Log => tracing::info!(%url, models = names.join(","), "listening"),
            ProgressOutput::Spinner | ProgressOutput::Lines => {
                self.print(&format!(
                    "tidegate {} · {} models · {url}\n  {}",
                    build_info::VERSION,
                    names.len(),
                    names.join("\n  ")
                ));
            }
        }
    }

    /// Prints a line, unless only log lines are shown.
    fn print(&self, line: &str) {
        if self.output == ProgressOutput::Log {
            return;
        }
        match &*self
            .spinner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
        {
            Some(spinner) => spinner.suspend(|| write_line(line)),
            None => write_line(line),
        }
    }

    fn start_spinner(&self, text: String) {
        let spinner = ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("  {spinner} {msg} {elapsed}")
                .expect("the template is fixed"),
        );
        spinner.set_message(text);
        spinner.enable_steady_tick(Duration::from_millis(100));
        *self
            .spinner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = Some(spinner);
    }

    fn stop_spinner(&self) {
        if let Some(spinner) = self
            .spinner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
        {
            spinner.finish_and_clear();
        }
    }

    /// What to do about a failed setup.
    fn advice(&self) -> &'static str {
        if self.watch {
            "fix the model: --watch loads it again when its files change"
        } else {
            "fix the model and restart the server; with --watch, the server loads a fixed model by itself"
        }
    }

    fn log(&self, child: usize, phase: Phase<'_>) {
        match phase {
            Phase::Loading { pid } => tracing::info!(worker = child, pid, "loading the model"),
            Phase::Log { text, .. } => {
                tracing::info!(target: "model", worker = child, "{}", text.trim_end())
            }
            Phase::Ready { after, slots } => {
                tracing::info!(
                    worker = child,
                    slots,
                    seconds = after.as_secs_f64(),
                    "model ready"
                )
            }
            Phase::Failed { reason } => tracing::error!(
                worker = child,
                reason,
                advice = self.advice(),
                "setup failed, the server stays up"
            ),
            Phase::Died { reason, pause } => {
                tracing::warn!(
                    worker = child,
                    reason,
                    pause_ms = pause.as_millis() as u64,
                    "model process died, replacing it"
                )
            }
            Phase::Defunct { reason } => tracing::error!(
                worker = child,
                reason,
                "model process died, the model is defunct"
            ),
        }
    }
}

impl Observer for StartupProgress {
    fn phase(&self, child: usize, phase: Phase<'_>) {
        let name = match (&self.model, child) {
            (None, 0) => String::new(),
            (None, child) => format!(" (worker {child})"),
            (Some(model), 0) => format!(" ({model})"),
            (Some(model), child) => format!(" ({model}, worker {child})"),
        };
        match (self.output, phase) {
            (ProgressOutput::Log, phase) => {
                let _in_model = self
                    .model
                    .as_deref()
                    .map(|model| tracing::info_span!("of", model).entered());
                self.log(child, phase);
            }
            (ProgressOutput::Spinner, Phase::Loading { .. }) if child == 0 => {
                self.start_spinner("loading the model".to_owned())
            }
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Loading { pid }) => {
                self.print(&format!("  loading the model{name}, process {pid}"))
            }
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Log { text, .. }) => {
                self.print(&format!("  | {}", text.trim_end_matches('\n')))
            }
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Ready { after, slots }) => {
                self.stop_spinner();
                let slots = if slots == 1 {
                    "1 slot".to_owned()
                } else {
                    format!("{slots} slots")
                };
                self.print(&format!(
                    "  ready{name} after {:.2} s with {slots}",
                    after.as_secs_f64()
                ));
            }
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Failed { reason }) => {
                self.stop_spinner();
                self.print(&format!("  setup failed{name}:\n{}", indented(reason)));
                let cause = error_line(reason).unwrap_or_default();
                self.print(&format!(
                    "\n  the server stays up, but cannot run predictions{name}: {cause}\n  {}\n",
                    self.advice()
                ));
            }
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Died { reason, .. }) => self
                .print(&format!(
                    "  model process died{name}, replacing it: {reason}"
                )),
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Defunct { reason }) => self
                .print(&format!(
                    "  model process died{name}, the model is defunct: {reason}"
                )),
        }
        if let Phase::Ready { .. } = phase
            && self
                .pending
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pending| {
                    pending.checked_sub(1)
                })
                == Ok(1)
            && let Some(banner) = (self.on_ready)()
        {
            self.print(&banner);
        }
    }

    fn pool_event(&self, event: PoolEvent<'_>) {
        let _in_model = self
            .model
            .as_deref()
            .map(|model| tracing::info_span!("of", model).entered());
        match event {
            PoolEvent::ScaleUpFailed { child, reason } => tracing::warn!(
                worker = child,
                reason,
                "failed to start another process, retrying later"
            ),
            PoolEvent::SpareReady { after } => {
                tracing::info!(seconds = after.as_secs_f64(), "spare process ready");
            }
            PoolEvent::SpareFailed { reason, pause } => tracing::warn!(
                reason,
                pause_s = pause.as_secs(),
                "spare process failed, retrying later"
            ),
        }
    }
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("  | {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Write errors are ignored, because stderr may be closed.
fn write_line(line: &str) {
    writeln!(std::io::stderr().lock(), "{line}").ok();
}
