//! The events of one started job, on their way from the executor to the job's tracker.
//!
//! A worker's report is confirmed when the tracker asks for the next event: it has then published the
//! report, and every reader sees it. The end of a job is confirmed when the service has committed it.

use std::sync::Arc;

use tidegate_core::Event;
use tidegate_core::port::OnCommitted;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

/// The most reports of one job that the tracker has not published yet.
pub(crate) const MAX_UNPUBLISHED: usize = 32;

/// Sends the events of one job.
pub(crate) struct EventSender {
    /// Without a limit of its own: a report holds a [`ReportPlace`], and the executor itself sends a
    /// few events per delivery, under its lock, where it cannot wait.
    events: mpsc::UnboundedSender<QueuedEvent>,
    places: Arc<Semaphore>,
    committed: watch::Receiver<bool>,
}

/// Receives the events of one job.
pub(crate) struct EventReceiver {
    events: mpsc::UnboundedReceiver<QueuedEvent>,
    places: Arc<Semaphore>,
    /// Confirms the last event, if it was a report.
    last: Option<PublishReceipt>,
    /// Confirms the end of the job.
    committed: Option<watch::Sender<bool>>,
}

struct QueuedEvent {
    event: Event,
    receipt: Option<PublishReceipt>,
}

/// A place for one unpublished report.
pub(crate) struct ReportPlace(
    #[expect(dead_code, reason = "held for its Drop")] OwnedSemaphorePermit,
);

/// Tells the sender of a report that every reader sees it.
struct PublishReceipt {
    published: oneshot::Sender<()>,
    /// Free for the next report when the receipt is dropped.
    #[expect(dead_code, reason = "held for its Drop")]
    place: ReportPlace,
}

/// Whether the end of a job is committed.
#[derive(Clone)]
pub(crate) struct EndCommit(watch::Receiver<bool>);

impl EndCommit {
    /// Waits for the commit. `false` when the service left the job without one.
    pub(crate) async fn wait(mut self) -> bool {
        self.0.wait_for(|committed| *committed).await.is_ok()
    }
}

/// An empty queue.
pub(crate) fn event_queue() -> (EventSender, EventReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (commit, committed) = watch::channel(false);
    let places = Arc::new(Semaphore::new(MAX_UNPUBLISHED));
    (
        EventSender {
            events: sender,
            places: Arc::clone(&places),
            committed,
        },
        EventReceiver {
            events: receiver,
            places,
            last: None,
            committed: Some(commit),
        },
    )
}

impl EventSender {
    /// Sends an event of the executor itself.
    pub(crate) fn emit(&self, event: Event) {
        // A receiver that is gone is about to cancel the job.
        self.events
            .send(QueuedEvent {
                event,
                receipt: None,
            })
            .ok();
    }

    /// Sends a report. The result resolves when every reader sees it, or when the job has ended.
    pub(crate) fn report(&self, event: Event, place: ReportPlace) -> oneshot::Receiver<()> {
        let (published, seen) = oneshot::channel();
        let receipt = Some(PublishReceipt { published, place });
        // A receiver that is gone is about to cancel the job.
        self.events.send(QueuedEvent { event, receipt }).ok();
        seen
    }

    /// The places for reports of this job.
    pub(crate) fn places(&self) -> ReportPlaces {
        ReportPlaces(Arc::clone(&self.places))
    }

    /// Whether the end of the job is committed.
    pub(crate) fn end_commit(&self) -> EndCommit {
        EndCommit(self.committed.clone())
    }
}

/// The places for unpublished reports of one job.
pub(crate) struct ReportPlaces(Arc<Semaphore>);

impl ReportPlaces {
    /// Waits for a place. `None` when the job has ended.
    pub(crate) async fn acquire(self) -> Option<ReportPlace> {
        self.0.acquire_owned().await.ok().map(ReportPlace)
    }
}

impl EventReceiver {
    /// The next event; `None` when there is no sender. Confirms the event before it. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        if let Some(receipt) = self.last.take() {
            // The worker may have disconnected meanwhile.
            receipt.published.send(()).ok();
        }
        let QueuedEvent { event, receipt } = self.events.recv().await?;
        self.last = receipt;
        Some(event)
    }

    /// What the service calls when it has committed the end of the job.
    pub(crate) fn on_committed(&mut self) -> Option<OnCommitted> {
        let committed = self.committed.take()?;
        Some(Box::new(move || {
            committed.send_replace(true);
        }))
    }
}

impl Drop for EventReceiver {
    fn drop(&mut self) {
        // Reports that wait for a place are no longer needed.
        self.places.close();
    }
}
