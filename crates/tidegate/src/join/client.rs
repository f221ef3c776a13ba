//! The requests to one router.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_core::chain;
use tidegate_net::Url;
use tidegate_router::join::{JoinRequest, JoinResponse, LeaveRequest};

use crate::usage_error::UsageError;

/// The time for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The same while the server shuts down.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// The characters of an error that are logged.
const MAX_SHOWN: usize = 300;

/// One router.
pub(super) struct RouterClient {
    client: tidegate_net::PlainClient,
    /// The router's URL with the path of registrations.
    url: Url,
    key: String,
    /// Whether the last request failed, so that each problem is logged once.
    is_failing: AtomicBool,
    /// Whether the router may have a registration of this server.
    is_joined: AtomicBool,
}

impl RouterClient {
    pub(super) fn new(router: &Url, key: &str) -> Result<Self, UsageError> {
        let invalid = |reason: String| {
            UsageError::new(format!(
                "failed to prepare requests to `{router}`: {reason}"
            ))
        };
        let base = router.as_str().trim_end_matches('/');
        let url =
            Url::parse(&format!("{base}/join")).map_err(|error| invalid(error.to_string()))?;
        let client =
            tidegate_net::unguarded_client().map_err(|error| invalid(error.to_string()))?;
        Ok(Self {
            client,
            url,
            key: key.to_owned(),
            is_failing: AtomicBool::new(false),
            is_joined: AtomicBool::new(false),
        })
    }

    /// Registers this server. Returns after which time to renew the registration, or `None` if it failed.
    pub(super) async fn join(&self, request: &JoinRequest, is_first: bool) -> Option<Duration> {
        let sent = self
            .client
            .put(self.url.clone())
            .bearer_auth(&self.key)
            .timeout(TIMEOUT)
            .json(request)
            .send()
            .await;
        let joined = match sent {
            Ok(response) if response.status().is_success() => {
                let body = response.json::<JoinResponse>().await;
                body.map_err(|error| chain(&error).to_string())
            }
            Ok(response) => {
                let status = response.status().as_u16();
                let text = response.text().await.unwrap_or_default();
                let text: String = text.chars().take(MAX_SHOWN).collect();
                Err(format!("it answered {status}: {text}"))
            }
            Err(error) => Err(chain(&error).to_string()),
        };
        if joined.is_ok() {
            self.is_joined.store(true, Ordering::Relaxed);
        }
        let was_failing = self.is_failing.swap(joined.is_err(), Ordering::Relaxed);
        let router = tidegate_net::host_of(&self.url);
        match joined {
            Ok(JoinResponse { url, models, ttl_s }) => {
                if was_failing || is_first {
                    tracing::info!(router, url, models = models.join(", "), "joined the router");
                }
                let ttl = Duration::try_from_secs_f64(ttl_s).unwrap_or(Duration::from_secs(1));
                Some(ttl / 3)
            }
            Err(reason) => {
                if !was_failing {
                    tracing::warn!(router, reason, "failed to join the router, retrying");
                }
                None
            }
        }
    }

    /// Removes the registration. If that fails, it ends with its time.
    pub(super) async fn leave(&self, url: &str) {
        if !self.is_joined.swap(false, Ordering::Relaxed) {
            return;
        }
        let request = LeaveRequest {
            url: url.to_owned(),
        };
        let sent = self
            .client
            .delete(self.url.clone())
            .bearer_auth(&self.key)
            .timeout(LEAVE_TIMEOUT)
            .json(&request)
            .send()
            .await;
        let router = tidegate_net::host_of(&self.url);
        match sent {
            Ok(response) if response.status().is_success() => {
                tracing::info!(router, "left the router");
            }
            Ok(response) => {
                let status = response.status().as_u16();
                tracing::warn!(router, status, "failed to leave the router");
            }
            Err(error) => {
                tracing::warn!(router, reason = %chain(&error), "failed to leave the router");
            }
        }
    }
}
