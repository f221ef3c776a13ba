//! The shutdown of a server, in this order: stop accepting → let accepted jobs end → cancel the rest →
//! send their webhooks → stop the children. After that the command has ended, and the last spans are exported
//! (`commands::traced`).

use std::time::Duration;

use tidegate_core::Status;
use tidegate_core::store::JobFilter;
use tidegate_service::{JobService, ModelRegistry};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::endpoint_setup::EndpointSetup;
use crate::exit;
use crate::http_server::HttpServer;

/// Time for the last responses, after the jobs have ended.
const LAST_RESPONSES: Duration = Duration::from_secs(5);

/// Signals that follow the first one within this time are the same request.
const REPEATED: Duration = Duration::from_millis(100);
/// After this time the server says what it waits for.
const NOTICE_AFTER: Duration = Duration::from_millis(500);
/// The number of running jobs that are named while the server waits for them.
const MAX_SHOWN: usize = 5;

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

    /// Ignores signals for a moment. Programs such as `timeout`, and shells, send a signal to the process
    /// and to its process group: that is one request to stop, not two.
    pub(crate) async fn skip_repeated(&mut self) {
        let end = tokio::time::sleep(REPEATED);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return,
                _ = self.next() => {}
            }
        }
    }

    /// Waits until the user asks a second time to stop the server. If the server takes a while,
    /// `log_wait` logs what it waits for.
    pub(crate) async fn second(&mut self, log_wait: impl FnOnce()) -> ShutdownCause {
        self.skip_repeated().await;
        match tokio::time::timeout(NOTICE_AFTER, self.next()).await {
            Ok(second) => second,
            Err(_) => {
                log_wait();
                self.next().await
            }
        }
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

/// Logs what a server that shuts down waits for.
pub(crate) fn log_wait(job_services: &[JobService]) {
    let filter = JobFilter {
        statuses: vec![Status::Starting, Status::Processing],
        ..JobFilter::default()
    };
    // All models share one registry of jobs.
    let service = job_services.first();
    let jobs = service.map_or_else(Vec::new, |service| service.list_in_memory(&filter));
    let shown: Vec<&str> = jobs
        .iter()
        .take(MAX_SHOWN)
        .map(|job| job.id.as_str())
        .collect();
    if jobs.is_empty() {
        tracing::warn!(
            "waiting for the delivery of webhooks and for open responses; press Ctrl-C again to stop at once"
        );
    } else {
        tracing::warn!(
            count = jobs.len(),
            jobs = shown.join(", "),
            "waiting for running jobs; press Ctrl-C again to stop at once"
        );
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

    /// The exit code if the signal ends the program at once, as the second one of a server does.
    pub(crate) fn forced_exit_code(self) -> u8 {
        match self {
            Self::Terminate | Self::Requested => exit::TERMINATED,
            Self::Interrupt => exit::INTERRUPTED,
        }
    }
}

/// Shuts down an API process of a cluster. Its jobs go on, on directors, so open responses get what they wait for
/// until `timeout`. Streams that are open then end, and another process continues them.
pub(crate) async fn drain_replica(
    models: &ModelRegistry,
    timeout: Duration,
    http: &mut HttpServer,
) {
    let deadline = Instant::now() + timeout;
    models.stop_accepting();
    http.finish_requests(timeout).await;
    let remaining = deadline.saturating_duration_since(Instant::now());
    http.while_running(models.close(remaining)).await;
    http.finish(LAST_RESPONSES).await;
    models.stop().await;
}

/// Shuts down the HTTP server, the models and the endpoints. Jobs of models that are not finished after
/// `timeout` are canceled; those of endpoints are left to the next run.
pub(crate) async fn drain(
    models: &ModelRegistry,
    endpoints: Option<&EndpointSetup>,
    timeout: Duration,
    http: &mut HttpServer,
) {
    match endpoints {
        // Workers deliver their results meanwhile, so the server still accepts connections.
        Some(endpoints) => http.while_running(endpoints.stop_handout()).await,
        None => http.stop_accepting(),
    }
    // Open requests get the responses of their jobs meanwhile.
    let all_ended = http.while_running(models.close(timeout)).await;
    if !all_ended {
        tracing::warn!(?timeout, "canceled jobs that did not end in time");
    }
    http.stop_accepting();
    http.finish(LAST_RESPONSES).await;
    if let Some(endpoints) = endpoints {
        endpoints.save().await;
    }
    models.stop().await;
}
