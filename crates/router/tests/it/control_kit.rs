//! A control plane with a file, for tests.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_net::upstream::{UpstreamConfig, UpstreamPool};
use tidegate_router::FleetRegistry;
use tidegate_router::control::{ControlOptions, FleetControl, FleetInput};
use tidegate_router::fleet::FleetError;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// The limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running control plane.
pub(crate) struct TestControl {
    pub(crate) registry: Arc<FleetRegistry>,
    pub(crate) control: FleetControl,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: DropGuard,
}

impl TestControl {
    pub(crate) fn start(input: FleetInput) -> Result<Self, FleetError> {
        let registry = Arc::new(FleetRegistry::new());
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let config = UpstreamConfig::default();
        let control = FleetControl::start_with(
            registry.clone(),
            UpstreamPool::new(config, &tasks),
            input,
            (&tasks, stop.clone()),
            ControlOptions {
                watch_interval: Duration::from_millis(20),
            },
        )?;
        Ok(Self {
            registry,
            control,
            tasks,
            stop: stop.drop_guard(),
        })
    }

    /// The URLs of the endpoints of a model, sorted; empty if there is no such model.
    pub(crate) fn endpoints(&self, model: &str) -> Vec<String> {
        let table = self.registry.table();
        let Some((_, group)) = table.route(model) else {
            return Vec::new();
        };
        let mut urls: Vec<_> = group.endpoints().iter().map(ToString::to_string).collect();
        urls.sort();
        urls
    }

    /// The permits of all endpoints by URL.
    pub(crate) fn limits(&self) -> HashMap<String, u32> {
        let endpoints = self.registry.endpoints();
        let limits = endpoints.iter().map(|e| (e.key().to_string(), e.limit()));
        limits.collect()
    }

    /// The names of all models.
    pub(crate) fn models(&self) -> Vec<String> {
        let table = self.registry.table();
        let models = table.fleet().models().iter();
        models.map(|model| model.name.clone()).collect()
    }

    /// Waits until the endpoints of a model are these.
    pub(crate) async fn wait_endpoints(&self, model: &str, expected: &[impl AsRef<str>]) {
        let expected: Vec<_> = expected.iter().map(|url| url.as_ref().to_owned()).collect();
        eventually(
            || self.endpoints(model) == expected,
            || format!("{:?} instead of {expected:?}", self.endpoints(model)),
        )
        .await;
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually(mut holds: impl FnMut() -> bool, state: impl Fn() -> String) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{}", state());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A file `fleet.toml` in a folder of its own.
pub(crate) struct TestFile {
    pub(crate) folder: TempDir,
}

impl TestFile {
    pub(crate) fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = Self { folder };
        file.write(text);
        file
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("fleet.toml")
    }

    pub(crate) fn write(&self, text: &str) {
        std::fs::write(self.path(), text).expect("the file is writable");
    }

    pub(crate) fn input(&self) -> FleetInput {
        FleetInput::File {
            path: self.path(),
            settings: &[],
        }
    }
}

/// A model `m` with these URLs.
pub(crate) fn model_with_urls(urls: &[&str]) -> String {
    let mut text = "[[model]]\nname = \"m\"\n".to_owned();
    for url in urls {
        text += &format!("[[model.endpoint]]\nurl = \"{url}\"\n");
    }
    text
}
