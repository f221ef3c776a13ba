//! What a person at a terminal sees while models start, and the example request at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_http::access::Tokens;
use tidegate_http::cog::ExampleRequest;
use tidegate_runtime::Observer;
use tidegate_service::{ModelRegistry, ModelSchema};

use crate::cli::{LogFormat, ProgressMode};
use crate::model_source::ModelSource;
use crate::progress::StartupProgress;
use crate::startup::ListeningServer;

/// Shows the startup of the models of a server.
#[derive(Clone)]
pub(super) struct StartupDisplay {
    pub(super) mode: ProgressMode,
    pub(super) format: LogFormat,
    /// Whether changed models are loaded again.
    pub(super) watch: bool,
    pub(super) banner: Arc<Banner>,
}

impl StartupDisplay {
    /// Shows which models are served, and where.
    pub(super) fn announce(
        &self,
        single: Option<&ModelSource>,
        found: &BTreeMap<String, ModelSource>,
        url: &str,
    ) {
        let progress = StartupProgress::new(self.mode, self.format, 0, Box::new(|| None));
        match single {
            Some(model) => progress.announce(model, url),
            None => progress.announce_all(found.keys().map(String::as_str), url),
        }
    }

    /// Shows the startup of one model with this many processes.
    pub(super) fn observer_for(&self, name: &str, children: usize) -> Arc<dyn Observer> {
        let (banner, model) = (Arc::clone(&self.banner), name.to_owned());
        let progress = StartupProgress::new(
            self.mode,
            self.format,
            children,
            Box::new(move || banner.once(&model)),
        )
        .with_watch(self.watch);
        // A trained version is shown with its full name, even next to a single model.
        let is_named = self.banner.several || name.contains(':');
        Arc::new(if is_named {
            progress.of_model(name)
        } else {
            progress
        })
    }
}

/// The URL of the server and an example request, shown once.
pub(super) struct Banner {
    /// Cleared at the end by [`BannerReset`], because the models own the runtimes, which own the
    /// observers, which own this.
    models: Mutex<Option<ModelRegistry>>,
    url: String,
    tokens: Option<Tokens>,
    /// The certificate of an https server.
    certificate: Option<PathBuf>,
    /// Whether there are several models, each with its own path.
    several: bool,
    was_shown: AtomicBool,
}

/// Clears the models of the banner when the server ends, on every path.
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
    pub(super) fn new(
        models: &ModelRegistry,
        server: &ListeningServer,
        certificate: Option<PathBuf>,
        several: bool,
    ) -> Self {
        Self {
            models: Mutex::new(Some(models.clone())),
            url: server.url.clone(),
            tokens: server.tokens.clone(),
            certificate,
            several,
            was_shown: AtomicBool::new(false),
        }
    }

    /// The text, for the first model that is ready.
    fn once(&self, name: &str) -> Option<String> {
        let models = self
            .models
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let model = models?.get(name)?;
        let schema = model.jobs().schema()?;
        if self.was_shown.swap(true, Ordering::Relaxed) {
            return None;
        }
        let base = if self.several {
            format!("{}/models/{name}", self.url)
        } else {
            self.url.clone()
        };
        Some(self.text(&base, &schema, &model.current().folder))
    }

    /// The URL, a request to paste, and the page for a browser.
    fn text(&self, url: &str, schema: &ModelSchema, folder: &Path) -> String {
        let document = serde_json::from_slice(&schema.document).unwrap_or_default();
        let mut options = String::new();
        if let Some(certificate) = &self.certificate {
            options.push_str(&format!("--cacert '{}' ", certificate.display()));
        }
        if self.tokens.is_some() {
            options.push_str("-H \"authorization: Bearer $TIDEGATE_API_TOKEN\" ");
        }
        let request = ExampleRequest::new(&document, folder).curl(url, &options);
        format!("\n  {url}\n  {request}\n  in a browser: {}/ui/\n", self.url)
    }
}
