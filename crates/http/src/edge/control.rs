//! How the program that started the edge ends it, step by step.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// Ends the edge. All clones control the same edge.
///
/// ```text
/// serving ──begin_drain──▶ draining ──stop──▶ finishing ──abort──▶ ended
/// ```
#[derive(Debug, Clone, Default)]
pub struct EdgeControl {
    draining: Arc<AtomicBool>,
    pub(super) stop: CancellationToken,
    pub(super) abort: CancellationToken,
}

impl EdgeControl {
    /// Every further response closes its connection, so that clients open new ones elsewhere.
    /// Connections are still accepted.
    pub fn begin_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Accepts no more connections and reads no more requests. Open requests and WebSockets go on.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// After [`EdgeControl::stop`], ends all connections at once.
    pub fn abort(&self) {
        self.abort.cancel();
    }

    /// Whether responses close their connections.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}
