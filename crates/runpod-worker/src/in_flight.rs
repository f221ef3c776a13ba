//! The jobs in in_flight, and whether there is room for more.
//!
//! A job needs room from the moment it is asked for until the model is done with it. After that only its
//! result is in in_flight, which takes the model's time no more; but a platform that takes no results gets no more
//! work done either.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Results that may wait for the platform before no more jobs are asked for.
const RESULTS: usize = 64;

#[derive(Default)]
pub(crate) struct InFlightJobs {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    jobs: HashMap<String, InFlightJob>,
    /// Jobs at once.
    limit: usize,
    /// Jobs that have been asked for.
    asked: usize,
    /// When the job was taken, counted.
    next: u64,
}

struct InFlightJob {
    nth: u64,
    stop: CancellationToken,
    /// Whether only its result is left.
    over: bool,
}

impl InFlightJobs {
    /// JobPoller a job into hand; gives what says that it is to stop. `None` when it is there already.
    pub(crate) fn add(&self, id: &str) -> Option<CancellationToken> {
        let mut inner = self.lock();
        if inner.jobs.contains_key(id) {
            return None;
        }
        let (nth, stop) = (inner.next, CancellationToken::new());
        inner.next += 1;
        inner.jobs.insert(
            id.to_owned(),
            InFlightJob {
                nth,
                stop: stop.clone(),
                over: false,
            },
        );
        Some(stop)
    }

    /// The model is done with a job; its result is not delivered yet.
    pub(crate) fn over(&self, id: &str) {
        if let Some(card) = self.lock().jobs.get_mut(id) {
            card.over = true;
        }
        self.changed.notify_waiters();
    }

    /// A job is no longer in in_flight.
    pub(crate) fn remove(&self, id: &str) {
        self.lock().jobs.remove(id);
        self.changed.notify_waiters();
    }

    /// Tells a job to stop; whether it is here.
    pub(crate) fn stop(&self, id: &str) -> bool {
        let inner = self.lock();
        let card = inner.jobs.get(id);
        if let Some(card) = card {
            card.stop.cancel();
        }
        card.is_some()
    }

    /// The ids of all jobs in in_flight, in the order in which they came.
    pub(crate) fn ids(&self) -> Vec<String> {
        let inner = self.lock();
        let mut ids: Vec<(u64, &String)> =
            inner.jobs.iter().map(|(id, card)| (card.nth, id)).collect();
        ids.sort_unstable();
        ids.into_iter().map(|(_, id)| id.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().jobs.is_empty()
    }

    /// Waits until nothing is in in_flight.
    pub(crate) async fn empty(&self) {
        self.until(|inner| inner.jobs.is_empty().then_some(()))
            .await;
    }

    /// Jobs at once from now on; those in hand are not touched.
    pub(crate) fn set_limit(&self, limit: usize) {
        let before = std::mem::replace(&mut self.lock().limit, limit);
        if before != limit {
            tracing::info!(from = before, to = limit, "jobs at once");
            self.changed.notify_waiters();
        }
    }

    /// Waits until there is room, and says for how many jobs.
    pub(crate) async fn room(&self) -> usize {
        self.until(|inner| Some(inner.room()).filter(|room| *room > 0))
            .await
    }

    /// Keeps room for jobs that are asked for, until it is dropped.
    pub(crate) fn ask(&self, count: usize) -> Reservation<'_> {
        self.lock().asked += count;
        Reservation {
            in_flight: self,
            count,
        }
    }

    async fn until<T>(&self, found: impl Fn(&Inner) -> Option<T>) -> T {
        loop {
            // Before looking, so that no change is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = found(&self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn room(&self) -> usize {
        let over = self.jobs.values().filter(|card| card.over).count();
        if over >= RESULTS {
            return 0;
        }
        self.limit
            .saturating_sub(self.jobs.len() - over + self.asked)
    }
}

/// Room that is kept.
pub(crate) struct Reservation<'a> {
    in_flight: &'a InFlightJobs,
    count: usize,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.in_flight.lock().asked -= self.count;
        self.in_flight.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn room(in_flight: &InFlightJobs) -> usize {
        in_flight.room().now_or_never().unwrap_or(0)
    }

    #[test]
    fn room_is_what_is_neither_asked_for_nor_worked_on() {
        let in_flight = InFlightJobs::default();
        assert_eq!(room(&in_flight), 0);
        in_flight.set_limit(3);
        assert_eq!(room(&in_flight), 3);
        let asking = in_flight.ask(2);
        assert_eq!(room(&in_flight), 1);
        in_flight.add("a").unwrap();
        assert_eq!(room(&in_flight), 0);
        drop(asking);
        assert_eq!(room(&in_flight), 2);
        in_flight.over("a");
        assert_eq!(room(&in_flight), 3);
        in_flight.set_limit(0);
        assert_eq!(room(&in_flight), 0);
    }

    #[test]
    fn results_that_nobody_takes_end_the_room() {
        let in_flight = InFlightJobs::default();
        in_flight.set_limit(1);
        for i in 0..RESULTS {
            in_flight.add(&i.to_string()).unwrap();
            in_flight.over(&i.to_string());
        }
        assert_eq!(room(&in_flight), 0);
        in_flight.remove("7");
        assert_eq!(room(&in_flight), 1);
    }

    #[test]
    fn a_job_is_in_hand_once() {
        let in_flight = InFlightJobs::default();
        let stop = in_flight.add("b").unwrap();
        assert!(in_flight.add("b").is_none());
        in_flight.add("a").unwrap();
        assert_eq!(in_flight.ids(), ["b", "a"]);
        assert!(in_flight.stop("b") && stop.is_cancelled());
        assert!(!in_flight.stop("c"));
    }
}
