//! The faults of a run: what calls lose, how long they take, and which servers are down now.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::random::SeededRandom;

/// How often calls fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FaultRates {
    /// The share of calls whose request is lost.
    pub lost_request: f64,
    /// The share of calls whose reply is lost, after their effect.
    pub lost_reply: f64,
    /// The share of calls that take seconds.
    pub slow: f64,
    /// The share of calls of directors that arrive after the director gave up.
    pub late: f64,
    /// The share of calls of directors that arrive twice.
    pub duplicate: f64,
    /// The share of webhooks that the receiver does not accept.
    pub refused_webhook: f64,
}

impl FaultRates {
    /// A network that loses nothing.
    pub const NONE: Self = Self {
        lost_request: 0.0,
        lost_reply: 0.0,
        slow: 0.0,
        late: 0.0,
        duplicate: 0.0,
        refused_webhook: 0.0,
    };

    /// A bad network.
    pub const BAD: Self = Self {
        lost_request: 0.003,
        lost_reply: 0.003,
        slow: 0.002,
        late: 0.002,
        duplicate: 0.002,
        refused_webhook: 0.05,
    };

    /// The same faults, this many times as often.
    pub fn times(self, factor: f64) -> Self {
        Self {
            lost_request: self.lost_request * factor,
            lost_reply: self.lost_reply * factor,
            slow: self.slow * factor,
            late: self.late * factor,
            duplicate: self.duplicate * factor,
            refused_webhook: self.refused_webhook,
        }
    }
}

/// A server that all processes use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedServer {
    /// The database.
    Store,
    /// The queue and the live events.
    Queue,
}

/// The faults of a run.
pub struct Faults {
    random: SeededRandom,
    rates: FaultRates,
    is_over: AtomicBool,
    store_is_down: AtomicBool,
    queue_is_down: AtomicBool,
    /// Until when directors are cut off from the API.
    cut_off: Mutex<BTreeMap<String, Instant>>,
}

/// What happens to one call.
#[derive(Debug, Clone, Copy)]
pub struct CallPlan {
    /// The time until the request arrives.
    pub request: Duration,
    /// The time until the reply arrives.
    pub reply: Duration,
    /// What is lost.
    pub loss: Option<Loss>,
}

/// What a call loses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The request: the call has no effect.
    Request,
    /// The reply: the call has its effect.
    Reply,
}

impl Faults {
    /// The faults of a seed.
    pub fn new(random: SeededRandom, rates: FaultRates) -> Self {
        Self {
            random,
            rates,
            is_over: AtomicBool::new(false),
            store_is_down: AtomicBool::new(false),
            queue_is_down: AtomicBool::new(false),
            cut_off: Mutex::default(),
        }
    }

    /// The random numbers of the faults.
    pub fn random(&self) -> &SeededRandom {
        &self.random
    }

    /// How often calls fail now.
    pub fn rates(&self) -> FaultRates {
        if self.is_over.load(Ordering::Relaxed) {
            FaultRates::NONE
        } else {
            self.rates
        }
    }

    /// From now on nothing fails.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.set_down(SharedServer::Store, false);
        self.set_down(SharedServer::Queue, false);
        self.lock().clear();
    }

    /// Whether the faults of the run are over.
    pub fn are_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Instant>> {
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn down(&self, server: SharedServer) -> &AtomicBool {
        match server {
            SharedServer::Store => &self.store_is_down,
            SharedServer::Queue => &self.queue_is_down,
        }
    }

    /// Stops or starts a server.
    pub fn set_down(&self, server: SharedServer, is_down: bool) {
        self.down(server).store(is_down, Ordering::Relaxed);
    }

    /// Whether a server is down.
    pub fn is_down(&self, server: SharedServer) -> bool {
        self.down(server).load(Ordering::Relaxed)
    }

    /// Cuts a director off from the API for this long.
    pub fn cut_off(&self, director: &str, lasts: Duration) {
        self.lock()
            .insert(director.to_owned(), Instant::now() + lasts);
    }

    /// Whether a director cannot reach the API.
    pub fn is_cut_off(&self, director: &str) -> bool {
        let now = Instant::now();
        self.lock().get(director).is_some_and(|until| *until > now)
    }

    /// What happens to the next call.
    pub fn plan(&self) -> CallPlan {
        let rates = self.rates();
        let bits = self.random.bits();
        let (mut request, mut reply) = (latency(bits), latency(bits >> 8));
        let draw = self.random.fraction();
        let lost = rates.lost_request + rates.lost_reply;
        let loss = if draw < rates.lost_request {
            Some(Loss::Request)
        } else if draw < lost {
            Some(Loss::Reply)
        } else {
            None
        };
        if draw >= lost && draw < lost + rates.slow {
            let most = Duration::from_secs(5);
            request += self.random.between(Duration::ZERO, most);
            reply += self.random.between(Duration::ZERO, most);
        }
        CallPlan {
            request,
            reply,
            loss,
        }
    }
}

/// Half of the messages need no time: the clock of tokio has whole milliseconds.
fn latency(bits: u64) -> Duration {
    Duration::from_millis((bits & 3).saturating_sub(1))
}
