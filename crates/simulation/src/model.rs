//! The simulated model of a director: its jobs take the time that their input says.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::pool_status::PoolStatus;
use tidegate_core::port::{Admission, Admitted, Executor, Running, WaitPolicy};
use tidegate_core::{Account, Event, JobId, Outcome, OutputValue, Refusal, Work};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::checker::{Checker, ExecutionEnd};
use crate::link::ProcessLife;

/// How long the model needs to stop.
const STOP_TIME: Duration = Duration::from_millis(20);
/// The OpenAPI document of the model.
const SCHEMA: &str = r#"{"components":{"schemas":{}},"paths":{}}"#;

/// The input of a simulated job.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ModelInput {
    /// How long it runs, in milliseconds.
    pub(crate) takes: u64,
    /// How many log lines it prints meanwhile.
    pub(crate) lines: u32,
    /// Whether it fails.
    pub(crate) fails: bool,
}

/// The model of one director process.
#[derive(Clone)]
pub(crate) struct SimulatedModel {
    inner: Arc<ModelState>,
}

struct ModelState {
    director: String,
    /// How many jobs it may run, and how many it does run: they differ with a planted bug.
    slots: usize,
    places: Arc<Semaphore>,
    size: usize,
    schema: Arc<Bytes>,
    life: ProcessLife,
    checker: Arc<Checker>,
}

impl SimulatedModel {
    /// The model of a director with this many slots. It runs `extra` jobs more.
    pub(crate) fn new(
        director: &str,
        slots: usize,
        extra: usize,
        life: ProcessLife,
        checker: Arc<Checker>,
    ) -> Self {
        Self {
            inner: Arc::new(ModelState {
                director: director.to_owned(),
                slots,
                places: Arc::new(Semaphore::new(slots + extra)),
                size: slots + extra,
                schema: Arc::new(Bytes::from_static(SCHEMA.as_bytes())),
                life,
                checker,
            }),
        }
    }
}

#[async_trait]
impl Executor for SimulatedModel {
    fn admit(&self, _account: &Account, _wait: WaitPolicy) -> Result<Admitted, Refusal> {
        let model = Arc::clone(&self.inner);
        let places = Arc::clone(&model.places);
        Ok(match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => Admitted::Now(Box::new(ModelAdmission { model, place })),
            Err(_) => Admitted::Queued(Box::pin(async move {
                let place = places.acquire_owned().await;
                model.life.or_never().await;
                let place = place.expect("the semaphore is never closed");
                Ok(Box::new(ModelAdmission { model, place }) as Box<dyn Admission>)
            })),
        })
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        Some(Arc::clone(&self.inner.schema))
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
        PoolStatus {
            slots: self.inner.size,
            free: self.inner.places.available_permits(),
            ..PoolStatus::default()
        }
    }
}

struct ModelAdmission {
    model: Arc<ModelState>,
    place: OwnedSemaphorePermit,
}

#[async_trait]
impl Admission for ModelAdmission {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let Self { model, place } = *self;
        model.life.or_never().await;
        let input: ModelInput = serde_json::from_slice(&work.input).unwrap_or(ModelInput {
            takes: 1000,
            lines: 0,
            fails: false,
        });
        let number = model
            .checker
            .execution_started(&work.id, &model.director, model.slots);
        let takes = Duration::from_millis(input.takes);
        let parts = input.lines + 1;
        Box::new(SimulatedRun {
            job: work.id,
            number,
            step: takes / parts,
            next_at: Instant::now() + takes / parts,
            lines_left: input.lines,
            fails: input.fails,
            is_canceled: false,
            end: None,
            model,
            _place: place,
        })
    }
}

struct SimulatedRun {
    model: Arc<ModelState>,
    job: JobId,
    number: u32,
    /// The time between two events.
    step: Duration,
    next_at: Instant,
    lines_left: u32,
    fails: bool,
    is_canceled: bool,
    end: Option<ExecutionEnd>,
    _place: OwnedSemaphorePermit,
}

#[async_trait]
impl Running for SimulatedRun {
    async fn next(&mut self) -> Event {
        tokio::time::sleep_until(self.next_at).await;
        self.model.life.or_never().await;
        if self.lines_left > 0 && !self.is_canceled {
            self.lines_left -= 1;
            self.next_at += self.step;
            return Event::Log {
                source: tidegate_core::LogSource::Stdout,
                text: "step\n".to_owned(),
            };
        }
        let (end, outcome) = if self.is_canceled {
            (ExecutionEnd::Stopped, Outcome::Canceled)
        } else if self.fails {
            let error = "the model failed".to_owned();
            (ExecutionEnd::Returned, Outcome::Failed { error })
        } else {
            let json = format!("{{\"execution\":{}}}", self.number);
            let output = OutputValue {
                json: Bytes::from(json),
                files: Vec::new(),
            };
            let output = Some(output);
            (ExecutionEnd::Returned, Outcome::Succeeded { output })
        };
        self.end = Some(end);
        Event::Ended(outcome)
    }

    fn cancel(&mut self) {
        if !self.is_canceled {
            self.is_canceled = true;
            self.next_at = Instant::now() + STOP_TIME;
        }
    }
}

impl Drop for SimulatedRun {
    fn drop(&mut self) {
        if self.model.life.is_running() {
            let end = self.end.unwrap_or(ExecutionEnd::Dropped);
            self.model
                .checker
                .execution_ended(&self.job, &self.model.director, self.number, end);
        }
    }
}
