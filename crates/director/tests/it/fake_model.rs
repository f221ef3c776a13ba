//! A fake model: the test sees the jobs that were started and sends their events.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::port::{Admission, Admitted, Executor, Running, WaitPolicy};
use tidegate_core::{Account, Event, Outcome, OutputValue, Refusal, Work};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// A model whose jobs are run by the test.
#[derive(Clone)]
pub(crate) struct FakeModel {
    slots: Arc<Semaphore>,
    size: usize,
    runs: Arc<Mutex<VecDeque<Run>>>,
    changed: Arc<Notify>,
    /// Cancelled when the model is loaded.
    loaded: CancellationToken,
}

/// One started job.
pub(crate) struct Run {
    pub(crate) work: Work,
    events: mpsc::UnboundedSender<Event>,
    canceled: CancellationToken,
    dropped: CancellationToken,
}

impl Run {
    pub(crate) fn send(&self, event: Event) {
        self.events.send(event).expect("the job is followed");
    }

    /// The model returns this value.
    pub(crate) fn succeed(&self, json: &'static str) {
        self.send(Event::Ended(Outcome::Succeeded {
            output: Some(value(json)),
        }));
    }

    /// Waits until the job is asked to stop.
    pub(crate) async fn cancel_requested(&self) {
        within(self.canceled.cancelled()).await;
    }

    /// Waits until the job is no longer followed.
    pub(crate) async fn dropped(&self) {
        within(self.dropped.cancelled()).await;
    }
}

impl FakeModel {
    pub(crate) fn new(size: usize) -> Self {
        let model = Self::unloaded(size);
        model.load();
        model
    }

    /// A model that has no slots until it is loaded.
    pub(crate) fn unloaded(size: usize) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(size)),
            size,
            runs: Arc::default(),
            changed: Arc::default(),
            loaded: CancellationToken::new(),
        }
    }

    pub(crate) fn load(&self) {
        self.loaded.cancel();
    }

    /// Waits for the next job that is started.
    pub(crate) async fn started(&self) -> Run {
        within(async {
            loop {
                let changed = self.changed.notified();
                if let Some(run) = self.runs.lock().unwrap().pop_front() {
                    return run;
                }
                changed.await;
            }
        })
        .await
    }

    /// Whether a job was started that the test has not seen.
    pub(crate) fn has_started(&self) -> bool {
        !self.runs.lock().unwrap().is_empty()
    }
}

/// Waits at most ten seconds.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    let limit = std::time::Duration::from_secs(10);
    tokio::time::timeout(limit, future)
        .await
        .expect("it happens within ten seconds")
}

pub(crate) fn value(json: &'static str) -> OutputValue {
    OutputValue {
        json: Bytes::from_static(json.as_bytes()),
        files: Vec::new(),
    }
}

#[async_trait]
impl Executor for FakeModel {
    fn admit(&self, _: &Account, _: WaitPolicy) -> Result<Admitted, Refusal> {
        let model = self.clone();
        let permit = Arc::clone(&self.slots).try_acquire_owned();
        let permit = permit.ok().filter(|_| self.loaded.is_cancelled());
        Ok(match permit {
            Some(permit) => Admitted::Now(Box::new(FakeAdmission { model, permit })),
            None => Admitted::Queued(Box::pin(async move {
                model.loaded.cancelled().await;
                let permit = Arc::clone(&model.slots).acquire_owned().await;
                let permit = permit.expect("the semaphore is never closed");
                Ok(Box::new(FakeAdmission { model, permit }) as Box<dyn Admission>)
            })),
        })
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        static SCHEMA: &str = r#"{"components":{"schemas":{}},"paths":{}}"#;
        Some(Arc::new(Bytes::from_static(SCHEMA.as_bytes())))
    }

    fn report(&self) -> HealthReport {
        HealthReport {
            health: Health::Ready,
            setup: None,
            health_error: None,
            python: None,
            sdk: None,
        }
    }

    async fn check(&self) -> HealthReport {
        self.report()
    }

    fn pool_status(&self) -> PoolStatus {
        if !self.loaded.is_cancelled() {
            return PoolStatus::default();
        }
        PoolStatus {
            slots: self.size,
            free: self.slots.available_permits(),
            ..PoolStatus::default()
        }
    }
}

struct FakeAdmission {
    model: FakeModel,
    permit: OwnedSemaphorePermit,
}

#[async_trait]
impl Admission for FakeAdmission {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let (events, receiver) = mpsc::unbounded_channel();
        let (canceled, dropped) = (CancellationToken::new(), CancellationToken::new());
        self.model.runs.lock().unwrap().push_back(Run {
            work,
            events,
            canceled: canceled.clone(),
            dropped: dropped.clone(),
        });
        self.model.changed.notify_waiters();
        Box::new(FakeRunning {
            receiver,
            canceled,
            _dropped: dropped.drop_guard(),
            _permit: self.permit,
        })
    }
}

struct FakeRunning {
    receiver: mpsc::UnboundedReceiver<Event>,
    canceled: CancellationToken,
    _dropped: tokio_util::sync::DropGuard,
    _permit: OwnedSemaphorePermit,
}

#[async_trait]
impl Running for FakeRunning {
    async fn next(&mut self) -> Event {
        match self.receiver.recv().await {
            Some(event) => event,
            // The test has dropped the run.
            None => std::future::pending().await,
        }
    }

    fn cancel(&mut self) {
        self.canceled.cancel();
    }
}
