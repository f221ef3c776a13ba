//! Who waits, who has which job, who is there: the state behind one lock, and how it changes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use serde_json::Value;
use tidegate_core::fair_queue::{FairQueue, HasOwner};
use tidegate_core::{Account, Event, JobId, Outcome, Work};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::early::Early;
use crate::executor::Seat;
use crate::held::{Held, How};
use crate::remote::Config;
use crate::reports::{Finish, Heard, Report, note, noted};
use crate::worker::{Count, Worker, WorkerId};

/// A worker of which nothing was heard for this long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);
/// The most workers that are remembered: whoever may ask chooses its own name.
const MOST_WORKERS: usize = 10_000;
/// What a worker says may have been on its way for so long.
const ON_ITS_WAY: Duration = Duration::from_secs(1);
/// How many jobs are remembered that workers have and nobody has begun here.
const MOST_NAMED: usize = 10_000;
/// Pings in a row that do not name a job before it is taken for lost.
const UNNAMED_PINGS: u32 = 2;

/// A job in the line.
pub(crate) struct Waiting {
    pub(crate) account: Account,
    pub(crate) give: oneshot::Sender<Seat>,
}

impl HasOwner for Waiting {
    type Owner = Account;

    fn owner(&self) -> &Account {
        &self.account
    }
}

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) line: FairQueue<Waiting>,
    /// Jobs that were begun and wait for another worker; they go before the line.
    again: VecDeque<JobId>,
    jobs: HashMap<JobId, Held>,
    workers: HashMap<WorkerId, Worker>,
    early: Early,
    /// Jobs that nobody has begun here, with the worker that says it has them.
    named: HashMap<JobId, (WorkerId, Instant)>,
    pub(crate) retried: u64,
    pub(crate) closed: bool,
    /// Nothing is given out before.
    pub(crate) rests_until: Option<Instant>,
}

impl Ledger {
    pub(crate) fn worker(&mut self, id: &WorkerId, now: Instant) -> &mut Worker {
        if !self.workers.contains_key(id) && self.workers.len() >= MOST_WORKERS {
            let oldest = self
                .workers
                .iter()
                .min_by_key(|(_, worker)| worker.last_sign())
                .map(|(id, _)| id.clone());
            oldest.map(|id| self.workers.remove(&id));
        }
        self.workers
            .entry(id.clone())
            .or_insert_with(|| Worker::new(now))
    }

    pub(crate) fn is_busy(&self, id: &WorkerId) -> bool {
        self.jobs.values().any(|held| {
            held.holder
                .as_ref()
                .is_some_and(|holder| holder.worker == *id)
        })
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.line.is_empty() || !self.again.is_empty()
    }

    /// The jobs that were begun and wait for another worker.
    pub(crate) fn begun_and_waiting(&self) -> Vec<JobId> {
        self.jobs
            .iter()
            .filter(|(_, held)| held.holder.is_none())
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// The next job that waits for another worker, given to this one: the job and the number of the delivery.
    pub(crate) fn next_again(&mut self, worker: &WorkerId, now: Instant) -> Option<(Work, u32)> {
        loop {
            let id = self.again.pop_front()?;
            // It may have been canceled, or its first worker may have been late and not lost.
            if let Some(held) = self.jobs.get_mut(&id).filter(|held| held.holder.is_none()) {
                return Some((held.work.clone(), held.send_to(worker, now)));
            }
        }
    }

    /// A job gets to a worker for the first time; the number of the delivery. `None` when a worker has it
    /// from a server before this one, or has brought its result already.
    pub(crate) fn begin(
        &mut self,
        work: &Work,
        events: mpsc::UnboundedSender<Event>,
        worker: &WorkerId,
        config: &Config,
        now: Instant,
    ) -> Option<u32> {
        let mut held = self.opened(work, events)?;
        let named = self
            .named
            .remove(&work.id)
            .filter(|(_, at)| now.saturating_duration_since(*at) < config.ping_within);
        let delivery = match named {
            Some((owner, _)) => {
                held.tell(noted(note::WORKER, owner.to_string().into()));
                held.is_with(&owner, Duration::ZERO, now);
                None
            }
            None => Some(held.send_to(worker, now)),
        };
        self.jobs.insert(work.id.clone(), held);
        delivery
    }

    /// A worker has a job from a server before this one, for so long already; or has brought its result.
    pub(crate) fn adopt(
        &mut self,
        work: &Work,
        events: mpsc::UnboundedSender<Event>,
        worker: &WorkerId,
        before: Duration,
        now: Instant,
    ) {
        self.named.remove(&work.id);
        // Whoever does not listen any more is about to cancel it.
        events
            .send(noted(note::WORKER, worker.to_string().into()))
            .ok();
        let Some(mut held) = self.opened(work, events) else {
            return;
        };
        held.is_with(worker, before, now);
        self.jobs.insert(work.id.clone(), held);
    }

    /// A job that begins here, in nobody's hands yet; `None` when its result is here already, which is told.
    fn opened(&mut self, work: &Work, events: mpsc::UnboundedSender<Event>) -> Option<Held> {
        self.early.begins(&work.id);
        let held = Held::new(work.clone(), events);
        let Some(finish) = self.early.take(&work.id) else {
            return Some(held);
        };
        finish
            .events(0)
            .into_iter()
            .for_each(|event| held.tell(event));
        self.early.is_over(&work.id);
        None
    }

    pub(crate) fn arrived(&mut self, id: &JobId, delivery: u32, now: Instant) {
        let Some(held) = self
            .jobs
            .get_mut(id)
            .filter(|held| held.deliveries == delivery)
        else {
            return;
        };
        let retries = held.deliveries - held.undelivered - 1;
        let Some(holder) = &mut held.holder else {
            return;
        };
        (holder.how, holder.since) = (How::Arrived, now);
        let worker = holder.worker.to_string();
        held.tell(noted(note::WORKER, worker.into()));
        if held.deliveries > 1 {
            held.tell(noted(note::WAITS, Value::Null));
        }
        if retries > 0 {
            held.tell(noted(note::RETRIES, retries.into()));
        }
    }

    /// A parcel came back. Says whether the job waits again.
    pub(crate) fn came_back(&mut self, id: &JobId, delivery: u32) -> bool {
        let Some(held) = self
            .jobs
            .get_mut(id)
            .filter(|held| held.deliveries == delivery)
        else {
            return false;
        };
        held.waits();
        held.undelivered += 1;
        self.again.push_front(id.clone());
        true
    }

    pub(crate) fn report(
        &mut self,
        worker: &WorkerId,
        id: &JobId,
        report: Report,
        config: &Config,
    ) -> Heard {
        let from_holder = |held: &Held| {
            held.holder
                .as_ref()
                .is_some_and(|holder| holder.worker == *worker)
        };
        let adopted = |held: &Held| {
            held.holder
                .as_ref()
                .is_some_and(|holder| holder.how == How::Adopted)
        };
        let stream_goes_on = match &report {
            Report::Part(_) => true,
            Report::StreamDone(finish) => finish.is_bare(),
            Report::Progress(_) | Report::Done(_) => false,
        };
        if stream_goes_on
            && self
                .jobs
                .get(id)
                .is_some_and(|held| from_holder(held) && adopted(held))
        {
            self.lose(
                id,
                "the parts that it gave to a server before this one are lost",
                config,
            );
            return Heard::Ignored;
        }
        match report {
            Report::Done(finish) => self.finish(worker, id, finish),
            Report::StreamDone(finish)
                if !finish.is_bare() || self.jobs.get(id).is_some_and(from_holder) =>
            {
                self.finish(worker, id, finish)
            }
            Report::StreamDone(_) => Heard::Ignored,
            Report::Progress(value) => match self.jobs.get(id).filter(|held| from_holder(held)) {
                Some(held) => {
                    held.tell(noted(note::PROGRESS, value));
                    Heard::Told
                }
                None => Heard::Ignored,
            },
            Report::Part(json) => match self.jobs.get_mut(id).filter(|held| from_holder(held)) {
                Some(held) => held.part(json),
                None => Heard::Ignored,
            },
        }
    }

    /// The first who ends a job ends it, also when it was sent to somebody else meanwhile.
    fn finish(&mut self, worker: &WorkerId, id: &JobId, finish: Finish) -> Heard {
        let Some(held) = self.jobs.remove(id) else {
            self.named.remove(id);
            return if self.early.keep(id, finish) {
                Heard::Kept
            } else {
                Heard::Ignored
            };
        };
        if held
            .holder
            .as_ref()
            .is_none_or(|holder| holder.worker != *worker)
        {
            held.tell(noted(note::WAITS, Value::Null));
            held.tell(noted(note::WORKER, worker.to_string().into()));
        }
        finish
            .events(held.told)
            .into_iter()
            .for_each(|event| held.tell(event));
        self.over(id, &held);
        Heard::Told
    }

    pub(crate) fn cancel(&mut self, id: &JobId) {
        self.end(id, vec![Event::Ended(Outcome::Canceled)]);
    }

    /// A job that nobody has begun here is not wanted any more. The worker that has it from before is told to stop.
    pub(crate) fn unwanted(&mut self, id: &JobId) {
        let Some((worker, _)) = self.named.remove(id) else {
            return;
        };
        self.early.is_over(id);
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.stops.insert(id.clone());
            worker.stirred.notify_waiters();
        }
    }

    /// Ends a job whatever its worker does, which is told to stop.
    fn end(&mut self, id: &JobId, events: Vec<Event>) {
        let Some(held) = self.jobs.remove(id) else {
            return;
        };
        events.into_iter().for_each(|event| held.tell(event));
        if let Some(worker) = held
            .holder
            .as_ref()
            .and_then(|holder| self.workers.get_mut(&holder.worker))
        {
            worker.stops.insert(id.clone());
        }
        self.over(id, &held);
    }

    fn over(&mut self, id: &JobId, held: &Held) {
        self.early.is_over(id);
        if let Some(worker) = held
            .holder
            .as_ref()
            .and_then(|holder| self.workers.get(&holder.worker))
        {
            worker.stirred.notify_waiters();
        }
    }

    /// Which jobs a worker says it has; `None` when it does not say. Tells those that nobody has begun here.
    pub(crate) fn pinged(
        &mut self,
        worker: &WorkerId,
        named: Option<&[&str]>,
        now: Instant,
    ) -> Vec<JobId> {
        let (Some(named), mut strange) = (named, Vec::new()) else {
            return Vec::new();
        };
        self.named
            .retain(|_, (_, at)| now.saturating_duration_since(*at) < FORGOTTEN_AFTER);
        for id in named
            .iter()
            .filter(|id| !self.jobs.contains_key(**id))
            .filter_map(|id| JobId::parse(id).ok())
        {
            if self.named.len() < MOST_NAMED && !self.early.knows(&id) {
                self.named.insert(id.clone(), (worker.clone(), now));
                strange.push(id);
            }
        }
        for (id, held) in &mut self.jobs {
            let Some(holder) = held
                .holder
                .as_mut()
                .filter(|holder| holder.worker == *worker && holder.how != How::Sent)
            else {
                continue;
            };
            // A ping that was on its way while the job came says nothing about it.
            let old_enough = now.saturating_duration_since(holder.since) > ON_ITS_WAY;
            let is_named = named.contains(&id.as_str());
            holder.named |= is_named;
            holder.unnamed = if is_named {
                0
            } else {
                holder.unnamed + u32::from(old_enough)
            };
        }
        strange
    }

    /// A worker asks for jobs and says that it has none: what it was sent and never named did not reach it.
    pub(crate) fn has_nothing(&mut self, worker: &WorkerId, config: &Config, now: Instant) {
        let never_came = |held: &Held| {
            held.holder.as_ref().is_some_and(|holder| {
                let since = now.saturating_duration_since(holder.since);
                holder.worker == *worker
                    && holder.how == How::Arrived
                    && !holder.named
                    && since > ON_ITS_WAY
            })
        };
        let lost: Vec<JobId> = self
            .jobs
            .iter()
            .filter(|(_, held)| never_came(held))
            .map(|(id, _)| id.clone())
            .collect();
        for id in lost {
            self.lose(&id, "it says that it has no job", config);
        }
    }

    /// Takes a job from a worker that is lost, or ends it when it took too long. Says whether it waits again.
    pub(crate) fn look_after(&mut self, id: &JobId, config: &Config, now: Instant) -> bool {
        let Some(held) = self.jobs.get(id) else {
            return false;
        };
        let Some(holder) = held
            .holder
            .as_ref()
            .filter(|holder| holder.how != How::Sent)
        else {
            return false;
        };
        let had_it = now.saturating_duration_since(holder.since) + holder.before;
        if let Some(limit) = held.limit().filter(|limit| had_it > *limit) {
            let error = format!(
                "job timed out: the worker had it for {} ms (executionTimeout)",
                limit.as_millis()
            );
            self.end(
                id,
                vec![
                    noted(note::TIMED_OUT, true.into()),
                    Event::Ended(Outcome::Failed { error }),
                ],
            );
            return false;
        }
        let lost = match self.workers.get(&holder.worker) {
            None => Some("it was forgotten"),
            Some(_) if holder.unnamed >= UNNAMED_PINGS => {
                Some("its pings do not name the job any more")
            }
            Some(worker) => worker.is_lost(config, now),
        };
        lost.is_some_and(|why| self.lose(id, why, config))
    }

    fn lose(&mut self, id: &JobId, why: &str, config: &Config) -> bool {
        let Some(held) = self.jobs.get_mut(id) else {
            return false;
        };
        let worker = held.waits();
        let worker = worker.as_ref().map_or("nobody", |worker| worker.as_str());
        tracing::warn!(job = %id, worker, why, "a worker was lost with a job");
        if held.deliveries - held.undelivered >= config.deliveries {
            let error = format!(
                "worker `{worker}` was lost with the job ({why}), and {} workers before it",
                config.deliveries - 1
            );
            self.end(id, vec![Event::Ended(Outcome::Failed { error })]);
            return false;
        }
        self.retried += 1;
        self.again.push_back(id.clone());
        true
    }

    pub(crate) fn count(&mut self, config: &Config, now: Instant) -> Count {
        self.workers.retain(|_, worker| {
            now.saturating_duration_since(worker.last_sign()) < FORGOTTEN_AFTER
        });
        let holders = self
            .jobs
            .values()
            .filter_map(|held| Some(&held.holder.as_ref()?.worker));
        // Those that have a job from a server before this one work too.
        let named = self
            .named
            .values()
            .filter(|(_, at)| now.saturating_duration_since(*at) < config.ping_within);
        let busy: HashSet<&WorkerId> = holders.chain(named.map(|(worker, _)| worker)).collect();
        let mut count = Count::default();
        for (id, worker) in &self.workers {
            // One that is gone without a job is missed by nobody.
            let silent = now.saturating_duration_since(worker.last_sign()) > config.ping_within * 3;
            let gone = silent || worker.is_lost(config, now).is_some();
            match () {
                () if worker.unhealthy => count.unhealthy += 1,
                () if busy.contains(id) => count.running += 1,
                () if gone => {}
                () if worker.asked => count.idle += 1,
                () => count.initializing += 1,
            }
        }
        count
    }
}
