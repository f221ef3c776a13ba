//! How long a refused client should wait before it tries again.

use std::time::Duration;

/// The service time of a model that has not served a request yet.
const DEFAULT_SERVICE_TIME: Duration = Duration::from_secs(2);
const MIN: Duration = Duration::from_secs(1);
const MAX: Duration = Duration::from_secs(600);

/// The load of a model at the moment of a refusal.
#[derive(Debug, Clone, Copy)]
pub struct ModelLoad {
    /// How long a request holds its permit or slot on average.
    pub service_time: Option<Duration>,
    /// The waiters that are served before a new one.
    pub ahead: usize,
    /// The permits or slots of the model.
    pub permits: u32,
}

/// The time until a permit or slot would have been free for the request, if it had been queued.
pub fn retry_after(load: ModelLoad) -> Duration {
    let service_time = load.service_time.unwrap_or(DEFAULT_SERVICE_TIME);
    let rounds = u32::try_from(load.ahead.saturating_add(1)).unwrap_or(u32::MAX);
    let wait = service_time.as_secs_f64() * f64::from(rounds) / f64::from(load.permits.max(1));
    Duration::from_secs_f64(wait.clamp(MIN.as_secs_f64(), MAX.as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_follows_the_service_rate_and_the_queue() {
        let load = ModelLoad {
            service_time: Some(Duration::from_secs(2)),
            ahead: 5,
            permits: 1,
        };
        assert_eq!(retry_after(load), Duration::from_secs(12));
        let wide = ModelLoad { permits: 4, ..load };
        assert_eq!(retry_after(wide), Duration::from_secs(3));
        let new = ModelLoad {
            service_time: None,
            ahead: 0,
            permits: 0,
        };
        assert_eq!(retry_after(new), DEFAULT_SERVICE_TIME);
        let overloaded = ModelLoad {
            ahead: usize::MAX,
            ..load
        };
        assert_eq!(retry_after(overloaded), MAX);
    }
}
