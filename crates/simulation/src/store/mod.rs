//! The simulated store: the rules of `tidegate_store::PostgresStore` in memory. All processes share one
//! [`StoreServer`]; each has a [`StoreClient`], whose calls take time and fail.

mod job_rows;
mod lease_rows;
mod outbox_rows;
mod port;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tidegate_core::lease::Nonce;
use tidegate_core::leases::{Holder, JobRef};
use tidegate_core::record::JobRecord;

use crate::checker::Checker;
use crate::clock::SimulatedClock;
use crate::link::ServerLink;
use crate::planted_bug::PlantedBug;
use outbox_rows::OutboxTable;

/// The database.
pub struct StoreServer {
    clock: SimulatedClock,
    checker: Option<Arc<Checker>>,
    planted: Option<PlantedBug>,
    state: Mutex<StoreState>,
}

/// The connection of one process to the database.
#[derive(Clone)]
pub struct StoreClient {
    server: Arc<StoreServer>,
    link: ServerLink,
}

#[derive(Default)]
struct StoreState {
    last_number: u64,
    jobs: HashMap<JobRef, JobRow>,
    /// Open jobs, by number.
    open: BTreeMap<u64, JobRef>,
    /// Open jobs with a lease that has not expired.
    leased: BTreeMap<u64, JobRef>,
    /// Open jobs that are not known to be in the queue.
    unqueued: BTreeMap<u64, JobRef>,
    /// Ended jobs, by the time of their end.
    ended: BTreeSet<(i64, u64, JobRef)>,
    /// The boot and the end of the life of each holder.
    holders: BTreeMap<String, (u64, i64)>,
    /// When expired leases were last looked for.
    pulse: i64,
    /// The recorded epoch of the queue.
    queue_epoch: Option<String>,
    outbox: OutboxTable,
    documents: BTreeMap<(String, String), Bytes>,
    /// A planted bug: leases are live for ever.
    never_expires: bool,
    /// Counts what planted bugs do sometimes.
    planted_calls: u64,
}

struct JobRow {
    number: u64,
    record: JobRecord,
    lease_nonce: Option<Nonce>,
    end_nonce: Option<Nonce>,
    lease_holder: Option<Holder>,
    lease_expired: bool,
    queued: bool,
    /// Since when it waits, in microseconds since 1970.
    waiting_since: i64,
}

impl StoreServer {
    /// An empty database.
    pub fn new(
        clock: SimulatedClock,
        checker: Option<Arc<Checker>>,
        planted: Option<PlantedBug>,
    ) -> Self {
        let state = StoreState {
            pulse: clock.micros(),
            never_expires: planted == Some(PlantedBug::NoExpiry),
            ..StoreState::default()
        };
        Self {
            clock,
            checker,
            planted,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, bug: PlantedBug) -> bool {
        self.planted == Some(bug)
    }

    /// True at every third call, if this bug is planted.
    fn has_sometimes(&self, bug: PlantedBug, state: &mut StoreState) -> bool {
        if !self.has(bug) {
            return false;
        }
        state.planted_calls += 1;
        state.planted_calls.is_multiple_of(3)
    }

    fn observe(&self, observe: impl FnOnce(&Checker)) {
        if let Some(checker) = &self.checker {
            observe(checker);
        }
    }
}

impl StoreClient {
    /// Connects a process to the database.
    pub fn new(server: Arc<StoreServer>, link: ServerLink) -> Self {
        Self { server, link }
    }
}

impl StoreState {
    /// Whether the last lease of a job is live.
    fn is_live(&self, row: &JobRow) -> bool {
        let Some(holder) = row.lease_holder.as_ref().filter(|_| !row.lease_expired) else {
            return false;
        };
        if self.never_expires {
            return true;
        }
        self.holders
            .get(&holder.name)
            .is_some_and(|(boot, alive_until)| *boot == holder.boot && *alive_until > self.pulse)
    }
}
