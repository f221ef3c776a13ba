//! The start as a person at a terminal sees it: each phase with its time, and what setup prints.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tidegate_runtime::{Observer, Phase};

use crate::build_info;
use crate::cli::{LogFormat, ProgressMode};
use crate::model_source::ModelSource;

/// Shows how the children of a model get on.
pub(crate) struct StartupProgress {
    output: ProgressOutput,
    /// Which model, where there are several.
    model: Option<String>,
    /// Turns while worker 0 loads.
    spinner: Mutex<Option<ProgressBar>>,
    /// What to say once, when all children are ready.
    on_ready: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Children that have never been ready.
    awaited: AtomicUsize,
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
        workers: usize,
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
            awaited: AtomicUsize::new(workers),
        }
    }

    /// The same for one model of several: lines with its name, and nothing that moves.
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

    /// The first thing anybody wants to know: what is served, and where.
    pub(crate) fn announce(&self, model: &ModelSource, url: &str) {
        let (dir, predictor) = (model.dir.display(), &model.predictor_ref);
        match self.output {
            ProgressOutput::Log => tracing::info!(%url, model = %dir, predictor, "listening"),
            ProgressOutput::Spinner | ProgressOutput::Lines => self.say(&format!(
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
                self.say(&format!(
                    "tidegate {} · {} models · {url}\n  {}",
                    build_info::VERSION,
                    names.len(),
                    names.join("\n  ")
                ));
            }
        }
    }

    /// One line for people; nothing when only log lines are wanted.
    pub(crate) fn say(&self, line: &str) {
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

    fn spin(&self, text: String) {
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

    fn still(&self) {
        if let Some(spinner) = self
            .spinner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
        {
            spinner.finish_and_clear();
        }
    }

    fn log(worker: usize, phase: Phase<'_>) {
        match phase {
            Phase::Loading { pid } => tracing::info!(worker, pid, "loading the model"),
            Phase::Log { text, .. } => {
                tracing::info!(target: "model", worker, "{}", text.trim_end())
            }
            Phase::Ready { after, slots } => {
                tracing::info!(worker, slots, seconds = after.as_secs_f64(), "model ready")
            }
            Phase::Failed { reason } => tracing::error!(worker, reason, "setup failed"),
            Phase::Died { reason, pause } => {
                tracing::warn!(
                    worker,
                    reason,
                    pause_ms = pause.as_millis() as u64,
                    "model process died, replacing it"
                )
            }
            Phase::Defunct { reason } => tracing::error!(
                worker,
                reason,
                "model process died; the model is defunct until one works again"
            ),
        }
    }
}

impl Observer for StartupProgress {
    fn phase(&self, worker: usize, phase: Phase<'_>) {
        let name = match (&self.model, worker) {
            (None, 0) => String::new(),
            (None, worker) => format!(" (worker {worker})"),
            (Some(model), 0) => format!(" ({model})"),
            (Some(model), worker) => format!(" ({model}, worker {worker})"),
        };
        match (self.output, phase) {
            (ProgressOutput::Log, phase) => {
                let _in_model = self.model.as_deref().map(|model| tracing::info_span!("of", model).entered());
                Self::log(worker, phase);
            }
            (ProgressOutput::Spinner, Phase::Loading { .. }) if worker == 0 => self.spin("loading the model".to_owned()),
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Loading { pid }) => self.say(&format!("  loading the model{name}, process {pid}")),
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Log { text, .. }) => self.say(&format!("  | {}", text.trim_end_matches('\n'))),
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Ready { after, slots }) => {
                self.still();
                let slots = if slots == 1 { "1 slot".to_owned() } else { format!("{slots} slots") };
                self.say(&format!("  ready{name} after {:.2} s with {slots}", after.as_secs_f64()));
            }
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Failed { reason }) => {
                self.still();
                self.say(&format!("  setup failed{name}:\n{}", indented(reason)));
            }
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Died { reason, .. }) => {
                self.say(&format!("  the model's process died{name} and is being replaced: {reason}"))
            }
            (ProgressOutput::Spinner | ProgressOutput::Lines, Phase::Defunct { reason }) => {
                self.say(&format!("  the model's process died{name} ; the model is defunct until one works again: {reason}"))
            }
        }
        if let Phase::Ready { .. } = phase
            && self
                .awaited
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |awaited| {
                    awaited.checked_sub(1)
                })
                == Ok(1)
            && let Some(banner) = (self.on_ready)()
        {
            self.say(&banner);
        }
    }
}

fn indented(text: &str) -> String {
    text.lines()
        .map(|line| format!("  | {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// For a person; one who has closed stderr does not want to know.
fn write_line(line: &str) {
    writeln!(std::io::stderr().lock(), "{line}").ok();
}
