//! Messages to other processes that something else replaces if they are lost: waiting clients poll, heartbeats
//! repeat cancels, the upkeep of the queue removes entries of ended jobs. So no call waits long for them, and
//! a process can stop while Redis does not reply.

use std::fmt::Display;
use std::time::Duration;

use tidegate_core::JobId;

/// How long a call waits for a message to be sent.
pub(super) const HINT_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends a message about a job. `purpose` is for the log.
pub(super) async fn send<T, E: Display>(
    purpose: &'static str,
    job: &JobId,
    sent: impl Future<Output = Result<T, E>>,
) {
    match tokio::time::timeout(HINT_TIMEOUT, sent).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::debug!(%job, %error, purpose, "failed to send a message to other processes")
        }
        Err(_) => {
            tracing::debug!(%job, purpose, "no reply to a message to other processes in time")
        }
    }
}
