//! The loop of one version, or of the versions that were trained from it: waits for free places, takes a message for
//! each from the queues of the version, and starts their jobs.
//!
//! A version with one queue has a read in progress for each free place; the queue combines them. Of several queues,
//! one message at a time is taken in turn. If none waits, all queues are read at the same time, so that a message of
//! any of them starts at once; if a second read gets a message while no place is free, that message is put back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tidegate_core::port::BoxFuture;
use tidegate_core::queue::{Claim, QueueName, TakeOptions};
use tidegate_service::ServedVersion;

use crate::capacity::{ModelCapacity, Place};
use crate::director::Inner;
use crate::job_run::TakenMessage;

/// How long one read waits for a message.
const BLOCK: Duration = Duration::from_secs(1);
/// The pause after the queue could not be read.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The most reads of one queue in progress.
const MAX_READS: usize = 16;

/// What a loop takes messages for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LoopKey {
    /// A version that the director serves.
    pub(crate) version: String,
    /// Whose jobs.
    pub(crate) jobs_of: JobsOf,
}

/// Whose jobs a loop takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum JobsOf {
    /// Those of the version itself.
    Version,
    /// Those of the trained versions that run its code.
    Trained,
}

/// Takes the messages of one loop.
pub(crate) struct VersionLoop {
    key: LoopKey,
    director: Arc<Inner>,
    version: Arc<ServedVersion>,
    capacity: Arc<ModelCapacity>,
    /// The rights to take the next messages.
    places: Vec<Place>,
    /// The reads in progress. They are not interrupted: a message that a read has just taken would have no
    /// owner.
    reads: FuturesUnordered<BoxFuture<(QueueName, Option<Claim>)>>,
    /// How many of them read each queue.
    reading: HashMap<QueueName, usize>,
    /// Which queue is asked first, if there are several.
    turn: usize,
}

impl VersionLoop {
    pub(crate) fn new(director: Arc<Inner>, version: Arc<ServedVersion>, jobs_of: JobsOf) -> Self {
        let executor = version.executor();
        let capacity = match jobs_of {
            JobsOf::Version => ModelCapacity::new(executor, director.config.loading),
            JobsOf::Trained => ModelCapacity::of_trained(executor),
        };
        Self {
            key: LoopKey {
                version: version.id().to_owned(),
                jobs_of,
            },
            capacity: Arc::new(capacity),
            director,
            version,
            places: Vec::new(),
            reads: FuturesUnordered::new(),
            reading: HashMap::new(),
            turn: 0,
        }
    }

    /// Runs until the director drains.
    pub(crate) async fn run(mut self) {
        let (director, capacity) = (Arc::clone(&self.director), Arc::clone(&self.capacity));
        while !director.draining.is_cancelled() {
            if !self.places.is_empty() {
                if let Some(claim) = self.take_waiting().await {
                    self.start_job(claim).await;
                    continue;
                }
                self.start_reads();
            }
            let is_idle = !self.places.is_empty() && self.reads.is_empty();
            tokio::select! {
                biased;
                () = director.draining.cancelled() => {}
                Some((queue, claim)) = self.reads.next(), if !self.reads.is_empty() => {
                    self.ended_read(&queue);
                    if let Some(claim) = claim {
                        self.start_job(claim).await;
                    }
                }
                place = capacity.place(), if self.places.is_empty() => self.places.push(place),
                () = has_queues(&director, &self.key), if is_idle => {}
            }
        }
        while let Some((_, claim)) = self.reads.next().await {
            if let Some(claim) = claim {
                director.claims.hold(claim).put_back().await;
            }
        }
    }

    /// Takes a message that waits, if there are several queues: a blocking read of each of them would take
    /// one message of each.
    async fn take_waiting(&mut self) -> Option<Claim> {
        let mut queues = queues_now(&self.director, &self.key);
        if queues.len() < 2 {
            return None;
        }
        self.turn = (self.turn + 1) % queues.len();
        queues.rotate_left(self.turn);
        for queue in queues {
            if self.reading.contains_key(&queue) {
                continue;
            }
            let now = TakeOptions::within(Duration::ZERO);
            match self.director.queue.take(&queue, now).await {
                Ok(None) => {}
                Ok(claim) => return claim,
                // The blocking read reports it.
                Err(_) => return None,
            }
        }
        None
    }

    /// Reads the queues that are not being read, the only one for each place.
    fn start_reads(&mut self) {
        let queues = queues_now(&self.director, &self.key);
        let wanted = match queues.len() {
            1 => self.take_places(),
            _ => 1,
        };
        for queue in queues {
            let reading = self.reading.entry(queue.clone()).or_default();
            while *reading < wanted {
                *reading += 1;
                let read = read(Arc::clone(&self.director), queue.clone());
                self.reads.push(Box::pin(read));
            }
        }
    }

    /// Takes the places that are free now; the number of all.
    fn take_places(&mut self) -> usize {
        while self.places.len() < MAX_READS
            && let Some(place) = self.capacity.try_place()
        {
            self.places.push(place);
        }
        self.places.len()
    }

    fn ended_read(&mut self, queue: &QueueName) {
        if let Some(reading) = self.reading.get_mut(queue) {
            *reading -= 1;
            if *reading == 0 {
                self.reading.remove(queue);
            }
        }
    }

    /// Starts the job of a message, if there is a place for it.
    async fn start_job(&mut self, claim: Claim) {
        let Some(place) = self.places.pop().or_else(|| self.capacity.try_place()) else {
            return self.director.claims.hold(claim).put_back().await;
        };
        let message = TakenMessage {
            claim,
            place,
            capacity: Arc::clone(&self.capacity),
            version: Arc::clone(&self.version),
            jobs_of: self.key.jobs_of,
        };
        let director = Arc::clone(&self.director);
        self.director.tasks.spawn(director.run_message(message));
    }
}

/// Takes a message from a queue, if there is one within [`BLOCK`].
async fn read(director: Arc<Inner>, queue: QueueName) -> (QueueName, Option<Claim>) {
    match director
        .queue
        .take(&queue, TakeOptions::within(BLOCK))
        .await
    {
        Ok(claim) => {
            director.queue_replied();
            (queue, claim)
        }
        Err(error) => {
            director.queue_failed(&error);
            tokio::time::sleep(RETRY_AFTER).await;
            (queue, None)
        }
    }
}

/// The queues that may be read now: none while the API cannot be reached, because nothing could be leased.
fn queues_now(director: &Inner, key: &LoopKey) -> Vec<QueueName> {
    if !*director.connected.borrow() {
        return Vec::new();
    }
    let assigned = director.assigned.borrow();
    assigned.get(key).cloned().unwrap_or_default()
}

/// Waits until there are queues that may be read.
async fn has_queues(director: &Inner, key: &LoopKey) {
    let mut connected = director.connected.subscribe();
    let mut assigned = director.assigned.subscribe();
    while queues_now(director, key).is_empty() {
        // The director has the senders, so neither wait fails.
        tokio::select! {
            changed = connected.changed() => changed.ok(),
            changed = assigned.changed() => changed.ok(),
        };
    }
}
