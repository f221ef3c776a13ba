//! Asks the driver for the state of the GPUs again and again, in a thread of its own.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::gpu::{GpuReport, GpuSource};
use tokio::sync::{oneshot, watch};

use crate::driver::{Driver, OpenError};
use crate::pid_namespace::PidTrust;
use crate::xid_watch;

/// How often the state is read.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long the start waits for the first state: a driver without users may need seconds to start.
const FIRST_STATE: Duration = Duration::from_secs(20);
/// The problem of a driver that has not answered in this time.
const NO_ANSWER: &str = "the driver does not answer";
/// How long [`GpuSource::refresh`] waits for the driver.
const REFRESH_LIMIT: Duration = Duration::from_secs(2);

/// The state of the GPUs of this machine.
#[derive(Debug)]
pub struct GpuMonitor {
    latest: watch::Receiver<Arc<GpuReport>>,
    requests: Sender<RefreshRequest>,
}

type RefreshRequest = oneshot::Sender<Arc<GpuReport>>;

impl GpuMonitor {
    /// Loads the driver's library, and reads the state of the GPUs for the first time. Blocks until then.
    /// Without the library there are no GPUs; a driver that does not answer in time is a problem of the report.
    /// `on_report` is called with each state, in the thread of the driver.
    pub fn start(trust: PidTrust, on_report: impl Fn(&GpuReport) + Send + 'static) -> Self {
        let (publish, latest) = watch::channel(Arc::default());
        let publish_problem = publish.clone();
        let (requests, incoming) = mpsc::channel();
        let (started, first) = mpsc::channel();
        let run = move || {
            let driver = match Driver::open(trust.pids_match()) {
                Ok(driver) => driver,
                Err(OpenError::NotInstalled) => return,
                Err(OpenError::Failed(problem)) => {
                    publish.send_replace(Arc::new(GpuReport {
                        problem: Some(problem),
                        ..GpuReport::default()
                    }));
                    return;
                }
            };
            let first = driver.read();
            on_report(&first);
            publish.send_replace(Arc::new(first));
            // The starter may have stopped waiting.
            started.send(()).ok();
            xid_watch::start(Arc::clone(&driver.nvml), driver.xids.clone());
            poll(&driver, &publish, &incoming, &on_report);
        };
        // The thread ends with the monitor, or with the process if the driver hangs.
        let thread = std::thread::Builder::new().name("nvml".to_owned());
        if let Err(error) = thread.spawn(run) {
            tracing::warn!(%error, "failed to start the thread that reads the state of the GPUs");
        }
        if first.recv_timeout(FIRST_STATE) == Err(RecvTimeoutError::Timeout) {
            publish_problem.send_if_modified(|report: &mut Arc<GpuReport>| {
                // It may have answered just now.
                let is_silent = report.at.is_none() && report.problem.is_none();
                if is_silent {
                    Arc::make_mut(report).problem = Some(NO_ANSWER.to_owned());
                }
                is_silent
            });
        }
        Self { latest, requests }
    }
}

#[async_trait]
impl GpuSource for GpuMonitor {
    fn report(&self) -> Arc<GpuReport> {
        Arc::clone(&self.latest.borrow())
    }

    async fn refresh(&self) -> Arc<GpuReport> {
        let (reply, answer) = oneshot::channel();
        if self.requests.send(reply).is_err() {
            return self.report();
        }
        match tokio::time::timeout(REFRESH_LIMIT, answer).await {
            Ok(Ok(report)) => report,
            Ok(Err(_)) | Err(_) => self.report(),
        }
    }
}

/// Reads the state until the monitor is gone.
fn poll(
    driver: &Driver,
    publish: &watch::Sender<Arc<GpuReport>>,
    requests: &Receiver<RefreshRequest>,
    on_report: &dyn Fn(&GpuReport),
) {
    loop {
        let request = match requests.recv_timeout(POLL_INTERVAL) {
            Ok(request) => Some(request),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // All requests that wait were made before this reading.
        let waiting: Vec<RefreshRequest> = request.into_iter().chain(requests.try_iter()).collect();
        let report = Arc::new(driver.read());
        on_report(&report);
        publish.send_replace(Arc::clone(&report));
        for reply in waiting {
            // The caller may have stopped waiting.
            reply.send(Arc::clone(&report)).ok();
        }
    }
}
