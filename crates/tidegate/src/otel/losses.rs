//! Counts the spans that did not reach the collector, and logs each outage once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The spans that were dropped.
#[derive(Debug, Default)]
pub(super) struct SpanLosses {
    count: AtomicU64,
    /// Whether the present outage was logged.
    is_logged: AtomicBool,
}

impl SpanLosses {
    /// Counts dropped spans.
    pub(super) fn add(&self, count: usize, reason: &str) {
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        if !self.is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                reason,
                "dropping spans until the collector accepts them; requests are not affected"
            );
        }
    }

    /// The collector has accepted spans.
    pub(super) fn export_succeeded(&self) {
        if self.is_logged.swap(false, Ordering::Relaxed) {
            let dropped = self.count.load(Ordering::Relaxed);
            tracing::info!(dropped, "exporting spans again");
        }
    }

    /// Logs the number of all dropped spans, if there are any.
    pub(super) fn log_total(&self) {
        let dropped = self.count.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(dropped, "spans did not reach the collector");
        }
    }
}
