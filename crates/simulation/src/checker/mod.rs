//! The checker: sees what clients, models, receivers and the store see, and checks the invariants of
//! `docs/torture.md` while the run goes on. What is known of a job is dropped some time after its end, so
//! that the memory of a run does not grow with its length.

mod job_trace;
mod numbers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::record::JobSpec;
use tidegate_core::store::JobFinish;
use tidegate_core::{JobId, Status};

pub(crate) use self::job_trace::HEAVY_ACCOUNT;
pub use self::numbers::{Percentiles, RunNumbers};
use crate::clock::SimulatedClock;
use crate::event_log::EventLog;
use job_trace::{Execution, ExecutionState, JobTrace};

/// How late a reply may arrive with which a job starts: the longest call for a lease.
const LATE_START: Duration = Duration::from_secs(11);
/// How long after its deadline a job may end: the lease of a lost director, the search for it, and pauses.
const LATE_END: Duration = Duration::from_secs(120);
/// How long an ended job is remembered.
const REMEMBERED: Duration = Duration::from_secs(180);
/// How many violations are described.
const MAX_DESCRIBED: usize = 50;

/// A broken invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The id of the invariant, as in `docs/torture.md`.
    pub invariant: &'static str,
    /// When it was seen, in milliseconds since the start of the run.
    pub at: u64,
    /// The job.
    pub job: String,
    /// What is wrong.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            invariant,
            at,
            job,
            text,
        } = self;
        write!(f, "{invariant} {job} at {at} ms: {text}")
    }
}

/// Sees everything that happens in a run.
pub struct Checker {
    clock: SimulatedClock,
    max_attempts: u32,
    state: Mutex<CheckerState>,
}

pub(crate) struct CheckerState {
    pub(crate) log: EventLog,
    jobs: HashMap<JobId, JobTrace>,
    /// Ended jobs in the order of their ends.
    ended: VecDeque<(u64, JobId)>,
    /// Until when each director was lost, or could not be reached.
    lost_directors: BTreeMap<String, u64>,
    /// The jobs that a model runs, by director.
    running: BTreeMap<String, usize>,
    numbers: RunNumbers,
    violations: Vec<Violation>,
}

/// How one execution of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionEnd {
    /// The model returned or failed.
    Returned,
    /// The model was asked to stop.
    Stopped,
    /// The director dropped it.
    Dropped,
}

impl Checker {
    /// Checks a run that starts now, in which a job may start `max_attempts` times.
    pub fn new(clock: SimulatedClock, log: EventLog, max_attempts: u32) -> Self {
        Self {
            clock,
            max_attempts,
            state: Mutex::new(CheckerState {
                log,
                jobs: HashMap::new(),
                ended: VecDeque::new(),
                lost_directors: BTreeMap::new(),
                running: BTreeMap::new(),
                numbers: RunNumbers::default(),
                violations: Vec::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, CheckerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        milliseconds(self.clock.elapsed())
    }

    /// Adds an event that no invariant depends on.
    pub fn note(&self, event: fmt::Arguments<'_>) {
        let now = self.now();
        self.lock().log.add(now, event);
    }

    /// The store has a new job.
    pub fn inserted(&self, spec: &JobSpec) {
        let now = self.now();
        let mut state = self.lock();
        state.log.add(
            now,
            format_args!("inserted {} {}", spec.id, spec.account.as_str()),
        );
        state.numbers.inserted += 1;
        let trace = JobTrace::new(spec, now);
        state.jobs.insert(spec.id.clone(), trace);
    }

    /// A client learned that its job is accepted.
    pub fn accepted(&self, id: &JobId) {
        let now = self.now();
        let mut state = self.lock();
        state.log.add(now, format_args!("accepted {id}"));
        if !state.jobs.contains_key(id) {
            state.violation(now, "I01", id, "accepted, and the store does not have it");
        }
    }

    /// A client learned that its cancel of a job is recorded.
    pub fn cancel_acknowledged(&self, id: &JobId) {
        let now = self.now();
        let mut state = self.lock();
        state.log.add(now, format_args!("cancel-acknowledged {id}"));
        let Some(job) = state.jobs.get_mut(id) else {
            return;
        };
        job.is_canceled = true;
        if let Some((_, status)) = job.end
            && status != Status::Canceled
        {
            let text = format!("a cancel was acknowledged, but the job is {status:?}");
            state.violation(now, "I07", id, &text);
        }
    }

    /// The store has granted a lease.
    pub fn leased(&self, id: &JobId, attempt: u32, holder: &str) {
        let now = self.now();
        let mut state = self.lock();
        state
            .log
            .add(now, format_args!("leased {id} {attempt} {holder}"));
        state.numbers.leases += 1;
        let Some(job) = state.jobs.get_mut(id) else {
            return;
        };
        job.leases += 1;
        if let Some((_, status)) = job.end {
            let text = format!("a lease is granted, but the job is {status:?}");
            state.violation(now, "I06", id, &text);
        }
    }

    /// The store has taken a lease back that does not count.
    pub fn released(&self, id: &JobId) {
        let now = self.now();
        let mut state = self.lock();
        state.log.add(now, format_args!("released {id}"));
        state.numbers.released += 1;
        if let Some(job) = state.jobs.get_mut(id) {
            job.leases = job.leases.saturating_sub(1);
        }
    }

    /// A director starts its model for a job. Returns the number of the execution.
    pub fn execution_started(&self, id: &JobId, director: &str, slots: usize) -> u32 {
        let now = self.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        state
            .log
            .add(now, format_args!("started {id} on {director}"));
        let running = state.running.entry(director.to_owned()).or_default();
        *running += 1;
        let running = *running;
        if running > slots {
            let text = format!("{director} runs {running} jobs on {slots} slots");
            state.violation(now, "I09", id, &text);
        }
        let Some(job) = state.jobs.get_mut(id) else {
            state.violation(
                now,
                "I06",
                id,
                "an execution starts long after the end of the job",
            );
            return 0;
        };
        let wait = job.first_start.is_none().then(|| now - job.created);
        job.first_start.get_or_insert(now);
        job.executions += 1;
        let number = job.executions;
        let previous = job.last_execution.replace(Execution {
            number,
            director: director.to_owned(),
            began: now,
            state: ExecutionState::Running,
        });
        let broken = job.late_start(now);
        let is_heavy = job.is_heavy;
        if let Some(wait) = wait {
            state.numbers.waited(is_heavy, wait);
        }
        state.numbers.executions += 1;
        if let Some((invariant, text)) = broken {
            state.violation(now, invariant, id, &text);
        }
        if let Some(previous) = previous
            && !state.was_lost(&previous)
        {
            let text = format!(
                "execution {number} on {director} starts although execution {} on {} was not lost",
                previous.number, previous.director
            );
            state.violation(now, "I05", id, &text);
        }
        number
    }

    /// An execution ended on a director that works.
    pub fn execution_ended(&self, id: &JobId, director: &str, number: u32, how: ExecutionEnd) {
        let now = self.now();
        let mut state = self.lock();
        state
            .log
            .add(now, format_args!("stopped {id} on {director} {how:?}"));
        if let Some(running) = state.running.get_mut(director) {
            *running = running.saturating_sub(1);
        }
        if let Some(job) = state.jobs.get_mut(id)
            && let Some(last) = &mut job.last_execution
            && last.number == number
        {
            last.state = match how {
                ExecutionEnd::Returned => ExecutionState::Returned,
                ExecutionEnd::Stopped | ExecutionEnd::Dropped => ExecutionState::Lost,
            };
        }
    }

    /// A director crashed: its executions are lost.
    pub fn director_crashed(&self, director: &str) {
        let now = self.now();
        let mut state = self.lock();
        state.log.add(now, format_args!("crashed {director}"));
        state.numbers.crashes += 1;
        state.running.remove(director);
        state.lost_until(director, now);
    }

    /// A director cannot be reached, or cannot reach others, until this much later.
    pub fn director_cut_off(&self, director: &str, lasts: Duration) {
        let now = self.now();
        let mut state = self.lock();
        state
            .log
            .add(now, format_args!("cut off {director} for {lasts:?}"));
        state.numbers.partitions += 1;
        state.lost_until(director, now + milliseconds(lasts));
    }

    /// The store has committed the end of a job.
    pub fn ended(&self, finish: &JobFinish) {
        let now = self.now();
        let (id, status) = (&finish.id, finish.status);
        let mut state = self.lock();
        state.log.add(now, format_args!("ended {id} {status:?}"));
        let Some(job) = state.jobs.get_mut(id) else {
            state.violation(now, "I02", id, "a job ends that ended long ago");
            return;
        };
        let broken = job.check_end(now, finish, self.max_attempts);
        job.end.get_or_insert((now, status));
        state.numbers.ended(status);
        state.ended.push_back((now, id.clone()));
        for (invariant, text) in broken {
            state.violation(now, invariant, id, &text);
        }
        state.forget_old(now);
    }

    /// A receiver got a webhook message. `accepted` is whether it replied with success.
    pub fn message_received(&self, id: &JobId, message: &str, status: Status, accepted: bool) {
        let now = self.now();
        let mut state = self.lock();
        state.log.add(
            now,
            format_args!("message {message} {id} {status:?} {accepted}"),
        );
        state.numbers.messages += 1;
        let Some(job) = state.jobs.get_mut(id) else {
            // The receiver accepted it before, and the reply was lost.
            return;
        };
        for (invariant, text) in job.check_message(message, status, accepted) {
            state.violation(now, invariant, id, &text);
        }
    }

    /// How many jobs have not ended or have a message that was not delivered.
    pub fn unsettled(&self) -> usize {
        let state = self.lock();
        state.jobs.values().filter(|job| !job.is_settled()).count()
    }

    /// How many jobs the store got so far.
    pub fn inserted_count(&self) -> u64 {
        self.lock().numbers.inserted
    }

    /// Checks what must hold at the end of a run, and returns the numbers and the violations.
    pub fn conclude(&self) -> (RunNumbers, Vec<Violation>, u64, u64) {
        let now = self.now();
        let mut state = self.lock();
        let mut left: Vec<(JobId, &'static str, &'static str)> = state
            .jobs
            .iter()
            .filter_map(|(id, job)| {
                if job.end.is_none() {
                    Some((id.clone(), "I01", "accepted, and it did not end"))
                } else if !job.is_settled() {
                    Some((id.clone(), "I04", "its last message was not delivered"))
                } else {
                    None
                }
            })
            .collect();
        left.sort_by(|(a, ..), (b, ..)| a.as_str().cmp(b.as_str()));
        for (id, invariant, text) in left {
            state.violation(now, invariant, &id, text);
        }
        let (hash, count) = (state.log.hash(), state.log.count());
        let violations = std::mem::take(&mut state.violations);
        (state.numbers.clone(), violations, hash, count)
    }
}

impl CheckerState {
    fn violation(&mut self, at: u64, invariant: &'static str, id: &JobId, text: &str) {
        self.log
            .add(at, format_args!("violation {invariant} {id} {text}"));
        self.numbers.violations += 1;
        if self.violations.len() < MAX_DESCRIBED {
            self.violations.push(Violation {
                invariant,
                at,
                job: id.to_string(),
                text: text.to_owned(),
            });
        }
    }

    fn lost_until(&mut self, director: &str, until: u64) {
        let known = self.lost_directors.entry(director.to_owned()).or_default();
        *known = until.max(*known);
    }

    /// Whether an execution was lost, so that another one may start.
    fn was_lost(&self, execution: &Execution) -> bool {
        match execution.state {
            ExecutionState::Lost => true,
            ExecutionState::Running | ExecutionState::Returned => self
                .lost_directors
                .get(&execution.director)
                .is_some_and(|until| *until >= execution.began),
        }
    }

    fn forget_old(&mut self, now: u64) {
        let remembered = milliseconds(REMEMBERED);
        while let Some((at, id)) = self.ended.front() {
            if at + remembered > now {
                return;
            }
            if self.jobs.get(id).is_some_and(|job| !job.is_settled()) {
                // Its message is still tried: look again later.
                let (_, id) = self.ended.pop_front().expect("it was just seen");
                self.ended.push_back((now, id));
                return;
            }
            let (_, id) = self.ended.pop_front().expect("it was just seen");
            self.jobs.remove(&id);
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
