//! How much may be asked of an endpoint: Runpod's own limits, for who wants them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Limits are counted over this time.
const WINDOW: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Asked {
    Run,
    RunSync,
    Status,
    Stream,
    Cancel,
    Purge,
    Requests,
}

impl Asked {
    /// How often in ten seconds.
    fn limit(self) -> u32 {
        match self {
            Self::Run => 1000,
            Self::RunSync | Self::Status | Self::Stream => 2000,
            Self::Cancel => 100,
            Self::Requests => 10,
            Self::Purge => 2,
        }
    }
}

/// Whether the limits of Runpod's cloud are kept.
#[derive(Default)]
pub struct Limits {
    /// What was asked of each endpoint lately; absent when they are not kept.
    windows: Option<Mutex<HashMap<(String, Asked), Window>>>,
}

/// What was asked since a moment.
struct Window {
    since: Instant,
    count: u32,
}

impl Limits {
    /// The limits of Runpod's cloud.
    pub fn cloud() -> Self {
        Self { windows: Some(Mutex::default()) }
    }

    /// Whether one more is too many; then the seconds until it is not.
    pub(super) fn refuse(&self, endpoint: &str, asked: Asked) -> Option<u64> {
        let mut windows = self.windows.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let window = windows.entry((endpoint.to_owned(), asked)).or_insert(Window { since: now, count: 0 });
        if now.saturating_duration_since(window.since) >= WINDOW {
            *window = Window { since: now, count: 0 };
        }
        window.count += 1;
        let left = WINDOW.saturating_sub(now.saturating_duration_since(window.since));
        (window.count > asked.limit()).then(|| left.as_secs() + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_endpoint_and_question_has_its_own_limit() {
        let limits = Limits::cloud();
        assert_eq!([(); 3].map(|()| limits.refuse("a", Asked::Purge)), [None, None, Some(11)]);
        assert_eq!((limits.refuse("b", Asked::Purge), limits.refuse("a", Asked::Run)), (None, None));
        tokio::time::advance(WINDOW).await;
        assert_eq!(limits.refuse("a", Asked::Purge), None);
        assert_eq!(Limits::default().refuse("a", Asked::Purge), None);
    }
}
