//! The task that acts when time passes: an endpoint may be used again, a detached permit has expired, the
//! load is sampled for the averages.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::statistics::SAMPLE_INTERVAL;
use crate::table::FleetRegistry;

impl FleetRegistry {
    /// Runs until `stop` is cancelled. Without it, waiters notice only at the next release that an endpoint
    /// may be used again, and detached permits do not expire.
    pub async fn run_timers(&self, stop: CancellationToken) {
        let mut last = Instant::now();
        let mut next_sample = last;
        loop {
            let now = Instant::now();
            if next_sample <= now {
                self.table()
                    .groups()
                    .iter()
                    .for_each(|group| group.sample());
                next_sample = now + SAMPLE_INTERVAL;
            }
            let endpoints = self.endpoints();
            let changes = endpoints.iter().filter_map(|e| e.fire_timers(last, now));
            let next = changes.min().unwrap_or(next_sample).min(next_sample);
            last = now;
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.timers.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }
}
