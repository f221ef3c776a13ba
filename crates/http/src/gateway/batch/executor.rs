//! Runs the queued requests of one model: each is forwarded like a request of a client, as soon as the
//! fleet has capacity for it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::event::{Metric, MetricMode};
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::port::{Admission, Admitted, BoxFuture, Executor, Running, WaitPolicy};
use tidegate_core::{Account, Event, Outcome, OutputValue, Refusal, Work};
use tokio::sync::Notify;

use super::ACCOUNT;
use super::queued_call::QueuedAnswer;
use crate::gateway::GatewayState;

/// How often the number of permits is read while no request may start: a new configuration or another
/// endpoint may have changed it.
const CAPACITY_POLL: Duration = Duration::from_millis(500);

/// Runs the queued requests of one model.
pub(super) struct RoutedExecutor {
    model: Arc<str>,
    gateway: Weak<GatewayState>,
    slots: Arc<RunningSlots>,
}

/// The queued requests that run. As many as the model has permits may run at the same time.
#[derive(Default)]
struct RunningSlots {
    used: AtomicU32,
    freed: Notify,
}

impl RoutedExecutor {
    pub(super) fn new(model: &str, gateway: Weak<GatewayState>) -> Self {
        Self {
            model: model.into(),
            gateway,
            slots: Arc::default(),
        }
    }

    fn health(&self) -> Health {
        // Without an endpoint the model is busy, not starting: requests may wait for the next one.
        match permits(&self.gateway, &self.model) {
            permits if self.slots.used.load(Ordering::Relaxed) < permits => Health::Ready,
            _ => Health::Busy,
        }
    }
}

/// The permits of a model now; 0 while it is not in the fleet or has no endpoint.
fn permits(gateway: &Weak<GatewayState>, model: &str) -> u32 {
    let Some(gateway) = gateway.upgrade() else {
        return 0;
    };
    let table = gateway.registry.table();
    match table.route(model) {
        // Another site may have the endpoints.
        Some((_, group)) if group.is_empty() && !table.fleet().sites.is_empty() => 1,
        Some((_, group)) => group.total_permits(),
        None => 0,
    }
}

impl RunningSlots {
    fn try_take(self: &Arc<Self>, limit: u32) -> Option<SlotGuard> {
        let take = |used| (used < limit).then_some(used + 1);
        let taken = self
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, take);
        taken.ok().map(|_| SlotGuard(Arc::clone(self)))
    }
}

/// The slot of a running request. Its drop frees the slot.
struct SlotGuard(Arc<RunningSlots>);

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}

#[async_trait]
impl Executor for RoutedExecutor {
    fn admit(&self, _account: &Account, _wait: WaitPolicy) -> Result<Admitted, Refusal> {
        let (gateway, model) = (Weak::clone(&self.gateway), Arc::clone(&self.model));
        let slots = Arc::clone(&self.slots);
        Ok(Admitted::Queued(Box::pin(async move {
            loop {
                let freed = slots.freed.notified();
                if let Some(slot) = slots.try_take(permits(&gateway, &model)) {
                    let admission: Box<dyn Admission> = Box::new(RoutedAdmission {
                        model,
                        gateway,
                        slot,
                    });
                    return Ok(admission);
                }
                tokio::time::timeout(CAPACITY_POLL, freed).await.ok();
            }
        })))
    }

    fn accepts(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        None
    }

    fn report(&self) -> HealthReport {
        HealthReport {
            health: self.health(),
            setup: None,
            health_error: None,
            python: None,
            sdk: None,
        }
    }

    async fn check(&self) -> HealthReport {
        self.report()
    }
}

struct RoutedAdmission {
    model: Arc<str>,
    gateway: Weak<GatewayState>,
    slot: SlotGuard,
}

#[async_trait]
impl Admission for RoutedAdmission {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let Self {
            model,
            gateway,
            slot,
        } = *self;
        let account = work.context.get(ACCOUNT).map(|name| Account::parse(name));
        let account = account.and_then(Result::ok).unwrap_or(Account::ANONYMOUS);
        let call: BoxFuture<QueuedAnswer> = Box::pin(async move {
            match gateway.upgrade() {
                Some(gateway) => gateway.call_queued(&model, account, work.input).await,
                // The router is closing, which also ends this task.
                None => std::future::pending().await,
            }
        });
        Box::new(RoutedRun {
            state: RunState::Calling(call),
            _slot: slot,
        })
    }
}

/// A queued request that runs. Its drop aborts the request to the backend.
struct RoutedRun {
    state: RunState,
    _slot: SlotGuard,
}

enum RunState {
    Calling(BoxFuture<QueuedAnswer>),
    /// The events that are left, in reverse order.
    Answered(Vec<Event>),
    Canceled,
}

#[async_trait]
impl Running for RoutedRun {
    async fn next(&mut self) -> Event {
        loop {
            match &mut self.state {
                RunState::Calling(call) => {
                    let answer = call.await;
                    self.state = RunState::Answered(events(answer));
                }
                RunState::Answered(events) => {
                    return events.pop().expect("not called after the last event");
                }
                RunState::Canceled => return Event::Ended(Outcome::Canceled),
            }
        }
    }

    fn cancel(&mut self) {
        if let RunState::Calling(_) = self.state {
            self.state = RunState::Canceled;
        }
    }
}

/// The events of an answer, the last one first.
fn events(answer: QueuedAnswer) -> Vec<Event> {
    let metric = |(name, tokens): (&str, u64)| {
        Event::Metric(Metric {
            name: name.to_owned(),
            value: tokens.into(),
            mode: MetricMode::Replace,
        })
    };
    match answer {
        Ok(result) => {
            let output = OutputValue {
                json: result.json,
                files: Vec::new(),
            };
            let ended = Event::Ended(Outcome::Succeeded {
                output: Some(output),
            });
            let usage = result.usage.into_iter().flat_map(|usage| {
                [
                    ("prompt_tokens", usage.prompt_tokens),
                    ("completion_tokens", usage.completion_tokens),
                ]
            });
            std::iter::once(ended).chain(usage.map(metric)).collect()
        }
        Err(error) => vec![Event::Ended(Outcome::Failed {
            error: error.to_string(),
        })],
    }
}
