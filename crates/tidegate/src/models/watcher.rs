//! Notices that a model's files have changed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::loader::ModelLoader;
use super::serve_target::ServeTarget;
use crate::source_version;

/// How often the files are looked at.
const EVERY: Duration = Duration::from_millis(500);

/// Whether and how changes are noticed.
pub(crate) struct ModelWatcher {
    /// Somebody says that there are some.
    pub(crate) asked: Arc<Notify>,
    /// Whether the files themselves are looked at.
    pub(crate) files: bool,
}

impl ModelWatcher {
    /// Keeps an offering up with its folders, for ever.
    pub(crate) async fn run(self, loader: &ModelLoader) {
        let mut seen = self.look(&loader.wanted).await;
        let mut moving = false;
        loop {
            let asked = tokio::select! {
                () = self.asked.notified() => true,
                () = tokio::time::sleep(EVERY), if self.files => false,
            };
            let now = self.look(&loader.wanted).await;
            let changed = now != seen;
            seen = now;
            // Files that are still being written are left alone until they come to rest.
            if asked || (moving && !changed) {
                loader.renew().await;
                moving = false;
            } else {
                moving |= changed;
            }
        }
    }

    /// All folders, each with what tells one state of its files from another.
    async fn look(&self, wanted: &ServeTarget) -> Vec<(u64, PathBuf)> {
        if !self.files {
            return Vec::new();
        }
        let wanted = wanted.clone();
        let print = |folder: PathBuf| (source_version::fingerprint(&folder), folder);
        let look = move || wanted.folders().into_iter().map(print).collect();
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }
}
