//! The shutdown of `serve`, in this order: stop accepting → let accepted jobs end → cancel the rest →
//! send their webhooks → stop the children.

use std::time::Duration;

use tidegate_service::ModelRegistry;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit;
use crate::http_server::HttpServer;

/// Time for the last responses, after the jobs have ended.
const LAST_RESPONSES: Duration = Duration::from_secs(5);

/// What SIGTERM does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sigterm {
    /// It shuts the server down.
    ShutDown,
    /// Nothing: the server ends on POST /shutdown or SIGINT.
    Ignore,
}

/// The signals that end the program.
pub(crate) struct Signals {
    term: Signal,
    int: Signal,
    sigterm: Sigterm,
}

impl Signals {
    /// Installs the handlers.
    pub(crate) fn listen(sigterm: Sigterm) -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            sigterm,
        })
    }

    /// Waits for the next signal that is not ignored.
    pub(crate) async fn next(&mut self) -> ShutdownCause {
        loop {
            tokio::select! {
                _ = self.term.recv() => match self.sigterm {
                    Sigterm::ShutDown => return ShutdownCause::Terminate,
                    Sigterm::Ignore => tracing::info!("ignored SIGTERM; use POST /shutdown or SIGINT"),
                },
                _ = self.int.recv() => return ShutdownCause::Interrupt,
            }
        }
    }
}

/// Why the program ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShutdownCause {
    /// SIGTERM; an orderly shutdown is a success.
    Terminate,
    /// SIGINT
    Interrupt,
    /// POST /shutdown
    Requested,
}

impl ShutdownCause {
    /// The exit code after an orderly shutdown.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Terminate | Self::Requested => 0,
            Self::Interrupt => exit::INTERRUPTED,
        }
    }

    /// The exit code if this was the second signal, which ends the program at once.
    pub(crate) fn forced_exit_code(self) -> u8 {
        match self {
            Self::Terminate | Self::Requested => exit::TERMINATED,
            Self::Interrupt => exit::INTERRUPTED,
        }
    }
}

/// Shuts down the HTTP server and the models. Jobs that are not finished after `timeout` are canceled.
pub(crate) async fn drain(models: &ModelRegistry, timeout: Duration, http: &mut HttpServer) {
    http.stop_accepting();
    // Open requests get the responses of their jobs meanwhile.
    let all_ended = http.while_running(models.close(timeout)).await;
    if !all_ended {
        tracing::warn!(?timeout, "canceled jobs that did not end in time");
    }
    http.finish(LAST_RESPONSES).await;
    models.stop().await;
}
