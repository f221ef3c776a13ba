//! Watches the files of the configuration and reloads it when one changes.
//!
//! The watcher compares the state of the files periodically: that works for every kind of replacement
//! (rename, symbolic link, mount) and on network file systems, where notifications of the kernel do not.

use std::sync::Arc;
use std::time::Duration;

use super::ControlShared;

/// Reloads when two looks find the same files, and others than those of the last attempt to load. A file
/// with a mistake is therefore tried again when it changes again.
pub(super) async fn run(control: Arc<ControlShared>, interval: Duration) {
    let mut last = control.state().files.clone();
    let stop = control.stop.clone();
    while stop
        .run_until_cancelled(tokio::time::sleep(interval))
        .await
        .is_some()
    {
        let loaded = control.state().files.clone();
        let files = loaded.clone();
        let Ok(now) = tokio::task::spawn_blocking(move || files.look()).await else {
            return;
        };
        if now == last && now != loaded {
            reload(&control).await;
        }
        last = now;
    }
}

async fn reload(control: &Arc<ControlShared>) {
    if let Err(error) = control.reload().await {
        tracing::error!(%error, "the changed configuration has mistakes; the old one stays in force");
    }
}
