//! The wall clock. What decides about jobs reads it here, so that a simulation can set it.

use jiff::Timestamp;

/// The current time. In a build with the feature `simulation`, a thread that simulates has its own.
pub fn now() -> Timestamp {
    #[cfg(feature = "simulation")]
    if let Some(now) = crate::simulation::now() {
        return now;
    }
    Timestamp::now()
}
