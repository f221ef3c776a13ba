//! Reloads models when their files change, or on SIGHUP.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::loader::ModelLoader;
use super::serve_target::ServeTarget;
use crate::source_version;

/// How often the watcher checks the files.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Reloads models when they change.
pub(crate) struct ModelWatcher {
    /// Notified when a reload is requested.
    reload_requested: Arc<Notify>,
    /// Whether to check the files as well.
    watches_files: bool,
}

impl ModelWatcher {
    pub(crate) fn new(reload_requested: Arc<Notify>, watches_files: bool) -> Self {
        Self {
            reload_requested,
            watches_files,
        }
    }

    /// Reloads the models of `loader` when they change, forever.
    pub(crate) async fn run(self, loader: &ModelLoader) {
        let mut previous = self.fingerprints(&loader.target).await;
        let mut is_settling = false;
        loop {
            let requested = tokio::select! {
                () = self.reload_requested.notified() => true,
                () = tokio::time::sleep(POLL_INTERVAL), if self.watches_files => false,
            };
            let current = self.fingerprints(&loader.target).await;
            let changed = current != previous;
            previous = current;
            // Reload after one interval without changes, because files may still be written.
            if requested || (is_settling && !changed) {
                loader.reload().await;
                is_settling = false;
            } else {
                is_settling |= changed;
            }
        }
    }

    /// The folder of each model with a fingerprint of its files.
    async fn fingerprints(&self, target: &ServeTarget) -> Vec<(u64, PathBuf)> {
        if !self.watches_files {
            return Vec::new();
        }
        let target = target.clone();
        let fingerprint = |folder: PathBuf| (source_version::fingerprint(&folder), folder);
        let all = move || target.folders().into_iter().map(fingerprint).collect();
        tokio::task::spawn_blocking(all).await.unwrap_or_default()
    }
}
