//! What a person at a terminal is told while models start, and how to go on from there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_http::access::Tokens;
use tidegate_runtime::Observer;
use tidegate_service::{ModelRegistry, ModelSchema};

use crate::cli::{LogFormat, ProgressMode};
use crate::inputs;
use crate::progress::StartupProgress;

/// Shows how the models of a server get on.
#[derive(Clone)]
pub(super) struct StartupDisplay {
    pub(super) mode: ProgressMode,
    pub(super) format: LogFormat,
    pub(super) workers: usize,
    pub(super) banner: Arc<Banner>,
}

/// How to go on from here.
pub(super) struct Banner {
    /// Emptied in the end: the models hold the runtimes, which hold the observers, which hold this.
    pub(super) models: Mutex<Option<ModelRegistry>>,
    pub(super) url: String,
    pub(super) tokens: Option<Tokens>,
    /// Whether there is more than one model, each below its own path.
    pub(super) several: bool,
    pub(super) said: AtomicBool,
}

impl StartupDisplay {
    /// For what concerns all models.
    pub(super) fn start(&self) -> StartupProgress {
        StartupProgress::new(self.mode, self.format, 0, Box::new(|| None))
    }

    /// For one model.
    pub(super) fn of(&self, name: &str) -> Arc<dyn Observer> {
        let (banner, of) = (Arc::clone(&self.banner), name.to_owned());
        let progress = StartupProgress::new(
            self.mode,
            self.format,
            self.workers,
            Box::new(move || banner.once(&of)),
        );
        // A version that was trained is told by its whole name, also beside the only model.
        let is_named = self.banner.several || name.contains(':');
        Arc::new(if is_named {
            progress.of_model(name)
        } else {
            progress
        })
    }
}

/// Lets go of the models when the server is over, however it ends.
pub(super) struct BannerReset(pub(super) Arc<Banner>);

impl Drop for BannerReset {
    fn drop(&mut self) {
        self.0
            .models
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

impl Banner {
    /// The first model that is ready is the one to try.
    fn once(&self, name: &str) -> Option<String> {
        let models = self
            .models
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let schema = models?.get(name)?.jobs().schema()?;
        if self.said.swap(true, Ordering::Relaxed) {
            return None;
        }
        let base = if self.several {
            format!("{}/models/{name}", self.url)
        } else {
            self.url.clone()
        };
        Some(greet(&base, self.tokens.as_ref(), &schema))
    }
}

/// The address, a call that can be pasted, a page.
fn greet(url: &str, tokens: Option<&Tokens>, schema: &ModelSchema) -> String {
    let document: serde_json::Value = serde_json::from_slice(&schema.document).unwrap_or_default();
    let body = serde_json::json!({ "input": inputs::example(&document) })
        .to_string()
        .replace('\'', "'\\''");
    let call = format!("{url}/predictions -H 'content-type: application/json' -d '{body}'");
    match tokens {
        Some(_) => format!(
            "\n  {url}\n  curl -s -H \"authorization: Bearer $TIDEGATE_API_TOKEN\" {call}\n"
        ),
        None => format!("\n  {url}\n  curl -s {call}\n  in a browser: {url}/docs\n"),
    }
}
