//! The state of a model: the state of its children, its setup and its schema.

mod scale;
mod spare;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::value::RawValue;
use tidegate_core::counters::Counters;
use tidegate_core::gpu::GpuId;
use tidegate_core::health::{Health, HealthReport, LoadSpan, SetupReport, SetupStatus};
use tidegate_core::pool_status::{DeathCause, PoolStatus, ProcessState};
use tidegate_ipc::control::Ready;
use tokio::sync::Notify;

use crate::batch;
use crate::child::process::ChildProcess;
use crate::child_stats::{ChildStats, memory_of};
use crate::slots::PoolCount;

/// The state of a model. The supervisor writes it; the runtime and the APIs read it.
pub(crate) struct ModelState {
    inner: Mutex<Inner>,
    deaths: Counters<DeathCause>,
    /// Set once every child has been ready: before that, callers get no slots.
    open: AtomicBool,
    /// Notified when the desired concurrency of a child may have changed.
    pub(crate) desired_concurrency_changed: Notify,
    /// Notified when a child has become ready or has stopped being ready.
    pub(crate) children_changed: Notify,
}

struct Inner {
    /// One entry per number that a child may have.
    children: Vec<ChildState>,
    /// One entry per child.
    stats: Vec<ChildStats>,
    /// The children that the load needs.
    wanted: Vec<bool>,
    /// Whether callers wait although the largest allowed number of children runs.
    is_short: bool,
    /// How many additional children could not be set up.
    scale_up_failures: u64,
    /// The process that waits to replace a child.
    spare: Option<spare::SpareState>,
    setup: SetupReport,
    schema: Option<Arc<Bytes>>,
    /// The schema as read from the model's code, known before the model is loaded.
    description: Option<Arc<Bytes>>,
    has_healthcheck: bool,
    python: Option<String>,
    sdk: Option<String>,
    /// How the last child died; `None` once a child is ready again.
    last_death: Option<String>,
    /// The latest time in which no child could run jobs because the model was loading.
    last_load: Option<LoadSpan>,
}

/// The state of one child.
pub(crate) enum ChildState {
    /// The load does not need a child with this number.
    Stopped,
    Starting,
    Ready(Arc<ChildProcess>),
    SetupFailed,
    Defunct,
}

/// Whether another child may still become ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    Possible,
    Impossible,
}

/// The longest setup log in the health report: a model that prints forever must not fill the memory.
const MAX_SETUP_LOGS: usize = 1024 * 1024;

impl ModelState {
    /// The state of a model with `children` children at first, and never more than `max_children`.
    pub(crate) fn new(children: usize, max_children: usize) -> Self {
        let setup = SetupReport {
            started_at: Timestamp::now(),
            completed_at: None,
            status: SetupStatus::Starting,
            logs: String::new(),
        };
        let inner = Inner {
            children: (0..max_children)
                .map(|number| {
                    if number < children {
                        ChildState::Starting
                    } else {
                        ChildState::Stopped
                    }
                })
                .collect(),
            stats: (0..max_children).map(|_| ChildStats::new()).collect(),
            wanted: (0..max_children).map(|number| number < children).collect(),
            is_short: false,
            scale_up_failures: 0,
            spare: None,
            setup,
            schema: None,
            description: None,
            has_healthcheck: false,
            python: None,
            sdk: None,
            last_death: None,
            last_load: None,
        };
        Self {
            inner: Mutex::new(inner),
            deaths: Counters::default(),
            open: AtomicBool::new(false),
            desired_concurrency_changed: Notify::new(),
            children_changed: Notify::new(),
        }
    }

    /// Whether callers may get slots: every child has been ready once.
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

    /// Records the GPUs of a child.
    pub(crate) fn gpus_assigned(&self, number: usize, gpus: &[GpuId]) {
        self.with(|inner| inner.stats[number].assigned(gpus));
    }

    /// The GPUs of the first child that was given some.
    pub(crate) fn first_gpus(&self) -> Option<Vec<GpuId>> {
        self.with(|inner| inner.stats.iter().find_map(ChildStats::gpus))
    }

    /// Whether a child was given one of these GPUs.
    pub(crate) fn uses_gpus(&self, gpus: &[GpuId]) -> bool {
        self.with(|inner| inner.stats.iter().any(|stats| stats.uses_gpus(gpus)))
    }

    /// Records that a process was started and loads the model.
    pub(crate) fn loading(&self, number: usize, pid: u32) {
        self.with(|inner| inner.stats[number].started(pid));
    }

    /// Counts the death of a child.
    pub(crate) fn died(&self, cause: DeathCause) {
        self.deaths.of(cause).inc();
    }

    /// The status of each child; `idle` has the process id of each free slot.
    pub(crate) fn pool_status(&self, idle: &[u32]) -> PoolStatus {
        let mut status = self.with(|inner| {
            let each = inner.children.iter().zip(&inner.stats).enumerate();
            let children = each.filter_map(|(number, (child, stats))| {
                Some(stats.status(number, child.process_state()?, idle))
            });
            PoolStatus {
                children: children.collect(),
                spares: inner.spare.iter().map(spare::SpareState::status).collect(),
                wanted: Some(inner.number_wanted()),
                restarts: inner.stats.iter().map(ChildStats::restarts).sum(),
                ..PoolStatus::default()
            }
        });
        let spares = status.spares.iter_mut().map(|spare| &mut spare.process);
        for process in status.children.iter_mut().chain(spares) {
            process.memory = process.pid.and_then(memory_of);
        }
        status.deaths = self.deaths.each().collect();
        status
    }

    /// The sum of the desired concurrency of all children; `None` if no child reports it.
    pub(crate) fn desired_concurrency(&self) -> Option<usize> {
        self.with(|inner| {
            let each = inner.children.iter().filter_map(|child| {
                if let ChildState::Ready(child) = child {
                    child.desired_concurrency()
                } else {
                    None
                }
            });
            each.reduce(|sum, one| sum + one)
        })
    }

    /// Records that a child is ready. Callers see it after [`ModelState::open`], when its slots are
    /// available.
    pub(crate) fn ready(&self, number: usize, child: Arc<ChildProcess>, ready: &Ready) {
        self.with(|inner| {
            if inner.setup.status == SetupStatus::Succeeded && inner.ready_children().is_empty() {
                inner.last_load = Some(LoadSpan {
                    began_at: inner.stats[number].since(),
                    ready_at: Timestamp::now(),
                });
            }
            inner.children[number] = ChildState::Ready(child);
            inner.stats[number].ready(batch::capacity_of(ready));
            inner.last_death = None;
            inner.schema = Some(inner.document(&ready.schema));
            inner.description.clone_from(&inner.schema);
            inner.has_healthcheck = ready.has_healthcheck;
            inner.python = Some(ready.python.clone());
            inner.sdk.clone_from(&ready.sdk);
        });
    }

    /// Records that the slots of the ready children are in the pool. Called earlier, a caller that
    /// arrives at once would get the answer that all slots are in use.
    pub(crate) fn open(&self) {
        self.with(|inner| {
            let all = inner
                .children
                .iter()
                .all(|child| matches!(child, ChildState::Ready(_) | ChildState::Stopped));
            if inner.setup.status == SetupStatus::Starting && all {
                let ready_at = Timestamp::now();
                inner.setup.status = SetupStatus::Succeeded;
                inner.setup.completed_at = Some(ready_at);
                inner.last_load = Some(LoadSpan {
                    began_at: inner.setup.started_at,
                    ready_at,
                });
                self.open.store(true, Ordering::Release);
            }
        });
        self.desired_concurrency_changed.notify_one();
        self.children_changed.notify_one();
    }

    /// Stores the schema that a starting child has read. A model that serves jobs keeps its schema,
    /// whatever a new child reads. Returns whether it is the first schema of the model.
    pub(crate) fn schema_read(&self, schema: &RawValue) -> bool {
        self.with(|inner| {
            let is_first = inner.description.is_none();
            if inner.schema.is_none() {
                inner.description = Some(inner.document(schema));
            }
            is_first
        })
    }

    pub(crate) fn starting(&self, number: usize, reason: &str) {
        self.with(|inner| {
            inner.children[number] = ChildState::Starting;
            inner.stats[number].ended(reason);
            inner.last_death = Some(reason.to_owned());
        });
    }

    pub(crate) fn setup_failed(&self, number: usize, reason: &str) {
        self.with(|inner| {
            inner.children[number] = ChildState::SetupFailed;
            inner.stats[number].ended(reason);
            if inner.setup.status == SetupStatus::Starting {
                inner.fail_setup(reason);
            }
        });
    }

    pub(crate) fn defunct(&self, number: usize, reason: &str) -> Recovery {
        self.with(|inner| {
            inner.children[number] = ChildState::Defunct;
            inner.stats[number].ended(reason);
            inner.last_death = Some(reason.to_owned());
            if inner.setup.status == SetupStatus::Starting {
                // This child died before all children were ready, so they never will be.
                inner.fail_setup(reason);
            }
            let recoverable = inner
                .children
                .iter()
                .any(|child| matches!(child, ChildState::Ready(_) | ChildState::Starting));
            if recoverable {
                Recovery::Possible
            } else {
                Recovery::Impossible
            }
        })
    }

    pub(crate) fn schema(&self) -> Option<Arc<Bytes>> {
        self.with(|inner| inner.schema.clone())
    }

    pub(crate) fn description(&self) -> Option<Arc<Bytes>> {
        self.with(|inner| inner.description.clone())
    }

    pub(crate) fn last_load(&self) -> Option<LoadSpan> {
        self.with(|inner| inner.last_load)
    }

    /// The health of the model. The slots are counted under the lock: a count from before may be
    /// older than the rest of the state.
    pub(crate) fn health(&self, count: impl FnOnce() -> PoolCount) -> Health {
        self.with(|inner| inner.health(count()))
    }

    pub(crate) fn report(&self, count: impl FnOnce() -> PoolCount) -> HealthReport {
        self.with(|inner| {
            let health = inner.health(count());
            HealthReport {
                health,
                setup: Some(inner.setup.clone()),
                health_error: inner
                    .last_death
                    .clone()
                    .filter(|_| matches!(health, Health::Starting | Health::Defunct)),
                python: inner.python.clone(),
                sdk: inner.sdk.clone(),
            }
        })
    }

    /// The children that can run the model's own health check.
    pub(crate) fn checkable(&self) -> Vec<Arc<ChildProcess>> {
        self.with(|inner| {
            if inner.has_healthcheck {
                inner.ready_children()
            } else {
                Vec::new()
            }
        })
    }
}

impl ChildState {
    /// The state that operators see; `None` for a number without a child.
    fn process_state(&self) -> Option<ProcessState> {
        match self {
            Self::Stopped => None,
            Self::Starting => Some(ProcessState::Starting),
            Self::Ready(_) => Some(ProcessState::Ready),
            Self::SetupFailed => Some(ProcessState::SetupFailed),
            Self::Defunct => Some(ProcessState::Defunct),
        }
    }
}

impl Inner {
    /// At first all children must become ready; later one ready child is enough.
    fn health(&self, count: PoolCount) -> Health {
        let any = |test: fn(&ChildState) -> bool| self.children.iter().any(test);
        match self.setup.status {
            SetupStatus::Starting => return Health::Starting,
            SetupStatus::Failed => return Health::SetupFailed,
            SetupStatus::Succeeded => {}
        }
        if any(|child| matches!(child, ChildState::Ready(_))) {
            if count.idle > 0 {
                Health::Ready
            } else {
                Health::Busy
            }
        } else if any(|child| matches!(child, ChildState::Starting)) {
            Health::Starting
        } else {
            Health::Defunct
        }
    }

    /// The schema as shared bytes. The known document is returned if it has the same content, so that
    /// callers that compare by pointer need not parse it again.
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

    fn ready_children(&self) -> Vec<Arc<ChildProcess>> {
        let ready = |child: &ChildState| match child {
            ChildState::Ready(child) => Some(Arc::clone(child)),
            ChildState::Stopped
            | ChildState::Starting
            | ChildState::SetupFailed
            | ChildState::Defunct => None,
        };
        self.children.iter().filter_map(ready).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::reaper::{self, Reaper};

    fn child(pid: u32) -> Arc<ChildProcess> {
        let (requests, _requests) = mpsc::unbounded_channel();
        Arc::new(ChildProcess::new(
            pid,
            reaper::new_tag(pid.into()),
            Reaper::global(),
            requests,
        ))
    }

    fn ready_with(slots: u32) -> Ready {
        Ready {
            slots: (0..slots).collect(),
            schema: RawValue::from_string("{}".to_owned()).unwrap(),
            is_async: false,
            has_healthcheck: false,
            python: String::new(),
            sdk: None,
            batch: None,
        }
    }

    /// A model whose children are ready; their process ids count from 10.
    fn ready_model(children: usize, max_children: usize) -> ModelState {
        let state = ModelState::new(children, max_children);
        for number in 0..children {
            let pid = 10 + number as u32;
            state.loading(number, pid);
            state.ready(number, child(pid), &ready_with(2));
        }
        state.open();
        state
    }

    #[test]
    fn only_a_child_without_jobs_is_removed() {
        let state = ready_model(3, 3);
        // Child 2 runs one job, child 1 none, child 0 two.
        let (number, removed) = state.remove_idle_child(&[12, 11, 11]).unwrap();
        assert_eq!((number, removed.pid()), (1, 11));
        assert!(!state.is_wanted(1) && state.is_wanted(2));
        assert_eq!(state.pool_status(&[]).wanted, Some(2));
        // It is removed once.
        assert!(state.remove_idle_child(&[12, 11, 11]).is_none());
    }

    #[test]
    fn a_child_that_finishes_its_jobs_counts_no_more_and_the_minimum_is_kept() {
        let state = ready_model(2, 2);
        assert_eq!(state.child_count().ready, 2);
        assert!(state.give_up_child(1, 1));
        assert_eq!(state.child_count().ready, 1);
        assert!(!state.give_up_child(0, 1));
        assert!(state.is_wanted(0));
    }

    #[test]
    fn a_number_is_free_again_when_its_child_has_exited() {
        let state = ready_model(1, 2);
        assert_eq!((state.add_child(), state.add_child()), (Some(1), None));
        state.loading(1, 20);
        state.ready(1, child(20), &ready_with(1));
        state.remove_idle_child(&[20]).unwrap();
        assert_eq!(state.add_child(), None);
        state.scaled_down(1);
        assert_eq!(state.pool_status(&[]).children.len(), 1);
        assert_eq!(state.add_child(), Some(1));
    }

    #[test]
    fn a_spare_is_no_child() {
        use tidegate_core::pool_status::SpareKind;
        let state = ready_model(1, 1);
        assert!(state.may_start_spare());
        let gpus = [GpuId::card(1)];
        state.spare_gpus(SpareKind::Loaded, &gpus);
        state.spare_starting(SpareKind::Loaded, 30);
        assert_eq!(state.pool_status(&[]).spares[0].process.gpus, gpus);
        state.spare_failed(SpareKind::Loaded, "no memory");
        let status = state.pool_status(&[]);
        assert_eq!((status.children.len(), status.wanted), (1, Some(1)));
        let [spare] = &status.spares[..] else {
            panic!("one spare")
        };
        assert_eq!(spare.process.state, ProcessState::SetupFailed);
        assert_eq!(spare.process.last_end.as_deref(), Some("no memory"));
        state.starting(0, "it fell");
        assert!(!state.may_start_spare());
    }

    #[test]
    fn a_model_is_not_ready_before_its_slots_are_available() {
        let (child, ready) = (child(1), ready_with(0));
        let state = ModelState::new(1, 1);
        let health = |idle| {
            state.health(|| PoolCount {
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
