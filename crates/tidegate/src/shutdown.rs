//! The end, in its one order: stop accepting → let accepted work end → cancel the rest → tell the
//! receivers of webhooks → end the children.

use std::time::Duration;

use tidegate_service::ModelRegistry;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit;

/// Which signals end the server.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    ignore_term: bool,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen(ignore_term: bool) -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            ignore_term,
        })
    }

    /// Waits for the next signal that counts; gives the exit code that belongs to it.
    pub(crate) async fn next(&mut self) -> ShutdownCause {
        loop {
            tokio::select! {
                _ = self.term.recv() => {
                    if !self.ignore_term {
                        return ShutdownCause::Terminate;
                    }
                    tracing::info!("SIGTERM is ignored: this server ends on POST /shutdown or SIGINT");
                }
                _ = self.int.recv() => return ShutdownCause::Interrupt,
            }
        }
    }
}

/// Why the server ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShutdownCause {
    /// SIGTERM: an orderly end is a success.
    Terminate,
    /// SIGINT
    Interrupt,
    /// POST /shutdown
    Requested,
}

impl ShutdownCause {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Terminate | Self::Requested => 0,
            Self::Interrupt => exit::INTERRUPTED,
        }
    }
}

/// Drains. A second signal while it lasts is the caller's business.
pub(crate) async fn drain(
    models: &ModelRegistry,
    patience: Duration,
    goodbye: &CancellationToken,
    http: impl Future<Output = ()>,
) {
    tokio::pin!(http);
    let jobs_over = models.close(patience);
    tokio::pin!(jobs_over);
    let (mut http_over, mut in_time) = (false, None);
    // The answers of running requests are written while their jobs end.
    while in_time.is_none() {
        tokio::select! {
            all = &mut jobs_over => in_time = Some(all),
            () = &mut http, if !http_over => http_over = true,
        }
    }
    if in_time == Some(false) {
        tracing::warn!(?patience, "some jobs did not end in time and were canceled");
    }
    if !http_over {
        tokio::select! {
            () = &mut http => {}
            () = tokio::time::sleep(Duration::from_secs(5)) => {
                goodbye.cancel();
                http.await;
            }
        }
    }
    models.stop().await;
}
