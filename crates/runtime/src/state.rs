//! How the children of a model are, all together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tidegate_core::health::{Health, HealthReport, SetupReport, SetupStatus};
use tidegate_core::meter::Counters;
use tidegate_core::pool_status::{DeathCause, PoolStatus};
use tidegate_ipc::control::Ready;
use tokio::sync::Notify;

use crate::crew::{Notes, memory_of};
use crate::parent::child::Child;
use crate::slots::Count;

/// What is known about a model; written by the supervisor, read by everybody.
pub(crate) struct State {
    inner: Mutex<Inner>,
    deaths: Counters<DeathCause>,
    /// Set once every child has been ready: until then there are no slots for callers.
    open: AtomicBool,
    /// Says that a child's code may want another number of jobs at once.
    pub(crate) desired_concurrency_changed: Notify,
}

struct Inner {
    workers: Vec<Worker>,
    /// What else is known about each of them.
    notes: Vec<Notes>,
    setup: SetupReport,
    schema: Option<Arc<Bytes>>,
    /// What the model's code says, which is known before it is loaded.
    description: Option<Arc<Bytes>>,
    has_healthcheck: bool,
    python: Option<String>,
    sdk: Option<String>,
    /// How the last child died; kept until one is ready again.
    end: Option<String>,
}

/// How one child is.
pub(crate) enum Worker {
    Starting,
    Ready(Arc<Child>),
    SetupFailed,
    Defunct,
}

/// Whether another child may still come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hope {
    Some,
    None,
}

/// Setup logs in the health report end here: a model that prints for ever must not eat the memory.
const MAX_SETUP_LOGS: usize = 1024 * 1024;

impl State {
    pub(crate) fn new(workers: usize) -> Self {
        let setup = SetupReport {
            started_at: Timestamp::now(),
            completed_at: None,
            status: SetupStatus::Starting,
            logs: String::new(),
        };
        let inner = Inner {
            workers: (0..workers).map(|_| Worker::Starting).collect(),
            notes: (0..workers).map(|_| Notes::new()).collect(),
            setup,
            schema: None,
            description: None,
            has_healthcheck: false,
            python: None,
            sdk: None,
            end: None,
        };
        Self {
            inner: Mutex::new(inner),
            deaths: Counters::default(),
            open: AtomicBool::new(false),
            desired_concurrency_changed: Notify::new(),
        }
    }

    /// Whether callers may have slots: the promised number of children has been ready once.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn setup_log(&self, text: &str) {
        self.with(|inner| {
            if inner.setup.status == SetupStatus::Starting
                && inner.setup.logs.len() + text.len() <= MAX_SETUP_LOGS
            {
                inner.setup.logs.push_str(text);
            }
        });
    }

    /// A process runs and loads the model.
    pub(crate) fn loading(&self, worker: usize, pid: u32) {
        self.with(|inner| inner.notes[worker].begun(pid));
    }

    /// Counts the death of a child.
    pub(crate) fn died(&self, cause: DeathCause) {
        self.deaths.of(cause).inc();
    }

    /// Who works here; `idle` has the process of each free slot.
    pub(crate) fn pool_status(&self, idle: &[u32]) -> PoolStatus {
        let mut children = self.with(|inner| {
            let each = inner.workers.iter().zip(&inner.notes).enumerate();
            each.map(|(number, (worker, notes))| notes.member(number, worker, idle))
                .collect::<Vec<_>>()
        });
        for child in &mut children {
            child.memory = child.pid.and_then(memory_of);
        }
        PoolStatus {
            children,
            deaths: self.deaths.each().collect(),
            ..PoolStatus::default()
        }
    }

    /// How many jobs at once the children's code wants, together.
    pub(crate) fn desired_concurrency(&self) -> Option<usize> {
        self.with(|inner| {
            let each = inner.workers.iter().filter_map(|worker| {
                if let Worker::Ready(child) = worker {
                    child.wanted()
                } else {
                    None
                }
            });
            each.reduce(|all, one| all + one)
        })
    }

    /// A child is there. Callers hear of it with [`State::open`], when they can have its slots.
    pub(crate) fn ready(&self, worker: usize, child: Arc<Child>, ready: &Ready) {
        self.with(|inner| {
            inner.workers[worker] = Worker::Ready(child);
            inner.notes[worker].ready(ready.slots.len());
            inner.end = None;
            inner.schema = Some(inner.document(&ready.schema));
            inner.description.clone_from(&inner.schema);
            inner.has_healthcheck = ready.has_healthcheck;
            inner.python = Some(ready.python.clone());
            inner.sdk.clone_from(&ready.sdk);
        });
    }

    /// The slots of the children that are ready can be had. Said before that, who comes at once would be told that
    /// they are all taken.
    pub(crate) fn open(&self) {
        self.with(|inner| {
            let all = inner
                .workers
                .iter()
                .all(|worker| matches!(worker, Worker::Ready(_)));
            if inner.setup.status == SetupStatus::Starting && all {
                inner.setup.status = SetupStatus::Succeeded;
                inner.setup.completed_at = Some(Timestamp::now());
                self.open.store(true, Ordering::Release);
            }
        });
        self.desired_concurrency_changed.notify_one();
    }

    /// A model that serves jobs goes on to take what it takes, whatever a new child reads.
    pub(crate) fn described(&self, schema: &RawValue) {
        self.with(|inner| {
            if inner.schema.is_none() {
                inner.description = Some(inner.document(schema));
            }
        });
    }

    pub(crate) fn starting(&self, worker: usize, reason: &str) {
        self.with(|inner| {
            inner.workers[worker] = Worker::Starting;
            inner.notes[worker].ended(reason);
            inner.end = Some(reason.to_owned());
        });
    }

    pub(crate) fn setup_failed(&self, worker: usize, reason: &str) {
        self.with(|inner| {
            inner.workers[worker] = Worker::SetupFailed;
            inner.notes[worker].ended(reason);
            if inner.setup.status == SetupStatus::Starting {
                inner.fail_setup(reason);
            }
        });
    }

    pub(crate) fn defunct(&self, worker: usize, reason: &str) -> Hope {
        self.with(|inner| {
            inner.workers[worker] = Worker::Defunct;
            inner.notes[worker].ended(reason);
            inner.end = Some(reason.to_owned());
            if inner.setup.status == SetupStatus::Starting {
                // It was ready and died before the others were: they will never all be.
                inner.fail_setup(reason);
            }
            let hope = inner
                .workers
                .iter()
                .any(|worker| matches!(worker, Worker::Ready(_) | Worker::Starting));
            if hope { Hope::Some } else { Hope::None }
        })
    }

    pub(crate) fn schema(&self) -> Option<Arc<Bytes>> {
        self.with(|inner| inner.schema.clone())
    }

    pub(crate) fn description(&self) -> Option<Arc<Bytes>> {
        self.with(|inner| inner.description.clone())
    }

    /// How it is in one word. The slots are counted meanwhile: a number from before may be older than the rest.
    pub(crate) fn health(&self, count: impl FnOnce() -> Count) -> Health {
        self.with(|inner| inner.health(count()))
    }

    pub(crate) fn report(&self, count: impl FnOnce() -> Count) -> HealthReport {
        self.with(|inner| {
            let health = inner.health(count());
            HealthReport {
                health,
                setup: Some(inner.setup.clone()),
                health_error: inner
                    .end
                    .clone()
                    .filter(|_| matches!(health, Health::Starting | Health::Defunct)),
                python: inner.python.clone(),
                sdk: inner.sdk.clone(),
            }
        })
    }

    /// The children whose own health check can be asked.
    pub(crate) fn checkable(&self) -> Vec<Arc<Child>> {
        self.with(|inner| {
            if inner.has_healthcheck {
                inner.children()
            } else {
                Vec::new()
            }
        })
    }
}

impl Inner {
    /// At first all children must come up; later one that works is enough.
    fn health(&self, count: Count) -> Health {
        let any = |test: fn(&Worker) -> bool| self.workers.iter().any(test);
        match self.setup.status {
            SetupStatus::Starting => return Health::Starting,
            SetupStatus::Failed => return Health::SetupFailed,
            SetupStatus::Succeeded => {}
        }
        if any(|worker| matches!(worker, Worker::Ready(_))) {
            if count.idle > 0 {
                Health::Ready
            } else {
                Health::Busy
            }
        } else if any(|worker| matches!(worker, Worker::Starting)) {
            Health::Starting
        } else {
            Health::Defunct
        }
    }

    /// The document that is known, if it is this one: who has read it need not do so again.
    fn document(&self, schema: &RawValue) -> Arc<Bytes> {
        let bytes = schema.get().as_bytes();
        match [&self.schema, &self.description]
            .into_iter()
            .flatten()
            .find(|known| ***known == bytes)
        {
            Some(known) => Arc::clone(known),
            None => Arc::new(Bytes::copy_from_slice(bytes)),
        }
    }

    fn fail_setup(&mut self, reason: &str) {
        self.setup.status = SetupStatus::Failed;
        self.setup.completed_at = Some(Timestamp::now());
        let logs = &mut self.setup.logs;
        if !logs.is_empty() && !logs.ends_with('\n') {
            logs.push('\n');
        }
        logs.push_str(reason);
    }

    fn children(&self) -> Vec<Arc<Child>> {
        let ready = |worker: &Worker| match worker {
            Worker::Ready(child) => Some(Arc::clone(child)),
            Worker::Starting | Worker::SetupFailed | Worker::Defunct => None,
        };
        self.workers.iter().filter_map(ready).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::leftovers::{Family, Mark};

    #[test]
    fn a_model_is_not_ready_before_its_slots_can_be_had() {
        let (requests, _requests) = mpsc::unbounded_channel();
        let child = Arc::new(Child::new(1, Mark::new(1), Family::of_process(), requests));
        let schema = RawValue::from_string("{}".to_owned()).unwrap();
        let ready = Ready {
            slots: Vec::new(),
            schema,
            is_async: false,
            has_healthcheck: false,
            python: String::new(),
            sdk: None,
        };
        let state = State::new(1);
        let health = |idle| {
            state.health(|| Count {
                idle,
                total: idle,
                waiting: 0,
            })
        };
        state.ready(0, child, &ready);
        assert_eq!((health(0), state.is_open()), (Health::Starting, false));
        state.open();
        assert_eq!((health(1), state.is_open()), (Health::Ready, true));
    }
}
