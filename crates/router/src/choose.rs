//! Chooses the endpoint of a request: a pure function of the request and of a copy of the counters.
//!
//! 1. Endpoints that the request may not use are left out: excluded, at another site, not usable.
//! 2. Healthy endpoints come before those that back off, local ones before those of other sites.
//! 3. With affinity: the endpoint that the key hashes to, unless it is hot.
//! 4. Otherwise the endpoint with the largest share of free permits; of equal ones, those with the
//!    shortest queue of their own, then those that are not much slower than the fastest, by weight.

use std::time::Duration;

use crate::health::HealthState;

/// An endpoint of the model, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// The permits in use.
    pub used: u32,
    /// All permits.
    pub limit: u32,
    /// The share of the traffic relative to others, for each permit.
    pub weight: f64,
    /// Whether it may be used.
    pub state: HealthState,
    /// Whether it stands at the site of this router.
    pub local: bool,
    /// Whether the request has tried it already.
    pub excluded: bool,
    /// The requests that wait in the backend itself.
    pub reported_queue: u32,
    /// The average time to the first byte.
    pub latency: Option<Duration>,
    /// The hash of its key.
    pub hash: u64,
}

/// What the choice depends on besides the endpoints.
#[derive(Debug, Clone, Copy)]
pub struct ChoiceQuery {
    /// The hash of the session or of the beginning of the prompt.
    pub affinity: Option<u64>,
    /// Whether endpoints of other sites are left out.
    pub local_only: bool,
    /// A number that grows by one with each request: equal endpoints take turns.
    pub turn: u64,
}

/// The endpoint of a request, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// The candidate with this index has a free permit.
    Lease(usize),
    /// All endpoints that the request may use are full.
    Wait,
    /// The request may use no endpoint.
    NoEndpoint,
}

/// An endpoint with fewer permits in use than this part of its limit is never hot.
const HOT_FROM: f64 = 0.5;
/// A hot endpoint is above this multiple of the average load.
const HOT_FACTOR: f64 = 1.25;
/// An endpoint is much slower than another if its latency is above this multiple.
const SLOW_FACTOR: u32 = 2;
/// Differences in latency below this do not matter.
const LATENCY_NOISE: Duration = Duration::from_millis(1);
const EPSILON: f64 = 1e-9;

/// Chooses the endpoint of a request.
pub fn choose(query: &ChoiceQuery, candidates: &[Candidate]) -> Choice {
    let allowed = |candidate: &Candidate| {
        !candidate.excluded
            && (candidate.local || !query.local_only)
            && candidate.limit > 0
            && candidate.state.is_usable()
    };
    let eligible = || candidates.iter().filter(|candidate| allowed(candidate));
    if eligible().next().is_none() {
        return Choice::NoEndpoint;
    }
    let healthy_exists = eligible().any(Candidate::is_healthy);
    let leasable = |candidate: &Candidate| {
        allowed(candidate)
            && candidate.used < candidate.limit
            && candidate.state != HealthState::TrialRunning
            && candidate.is_healthy() == healthy_exists
    };
    let local = candidates.iter().any(|c| leasable(c) && c.local);
    let in_tier = |candidate: &Candidate| leasable(candidate) && candidate.local == local;
    let chosen = match query.affinity {
        Some(key) => by_affinity(key, candidates, in_tier),
        None => by_load(query.turn, candidates, in_tier),
    };
    chosen.map_or(Choice::Wait, Choice::Lease)
}

impl Candidate {
    fn is_healthy(&self) -> bool {
        matches!(self.state, HealthState::Healthy | HealthState::Trial)
    }

    /// How much traffic it takes relative to others.
    fn share(&self) -> f64 {
        f64::from(self.limit) * self.weight.max(EPSILON)
    }

    /// The permits in use, relative to its share.
    fn load(&self) -> f64 {
        f64::from(self.used) / self.share()
    }
}

/// The candidate with the lowest load; see the top of this file for the rest of the order.
fn by_load(
    turn: u64,
    candidates: &[Candidate],
    in_tier: impl Fn(&Candidate) -> bool,
) -> Option<usize> {
    let tier = || candidates.iter().filter(|candidate| in_tier(candidate));
    let load = tier().map(Candidate::load).min_by(f64::total_cmp)?;
    let least = |candidate: &&Candidate| candidate.load() <= load + EPSILON;
    let queue = tier().filter(least).map(|c| c.reported_queue).min()?;
    let shortest = |candidate: &&Candidate| least(candidate) && candidate.reported_queue == queue;
    let fastest = tier().filter(shortest).filter_map(|c| c.latency).min();
    let slow = fastest.map(|fastest| fastest * SLOW_FACTOR + LATENCY_NOISE);
    let equal = |candidate: &Candidate| {
        in_tier(candidate)
            && shortest(&candidate)
            // Without a latency it has not been tried yet.
            && slow.is_none_or(|slow| candidate.latency.is_none_or(|latency| latency <= slow))
    };
    take_turns(turn, candidates, equal)
}

/// One of the equal candidates, each as often as its share says. The multiples of the golden ratio are
/// spread evenly, so that equal endpoints take turns even in a short sequence.
fn take_turns(
    turn: u64,
    candidates: &[Candidate],
    equal: impl Fn(&Candidate) -> bool,
) -> Option<usize> {
    let shares: f64 = candidates
        .iter()
        .filter(|candidate| equal(candidate))
        .map(Candidate::share)
        .sum();
    let position = unit_interval(turn.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * shares;
    let mut end = 0.0;
    let mut last = None;
    for (index, candidate) in candidates.iter().enumerate() {
        if equal(candidate) {
            end += candidate.share();
            last = Some(index);
            if position < end {
                break;
            }
        }
    }
    last
}

/// Weighted rendezvous hashing with bounded load: the candidate with the highest score that is not hot.
/// Removing an endpoint moves only the keys that it had.
fn by_affinity(
    key: u64,
    candidates: &[Candidate],
    in_tier: impl Fn(&Candidate) -> bool,
) -> Option<usize> {
    let usable = || candidates.iter().filter(|c| c.is_healthy());
    let used: f64 = usable().map(|c| f64::from(c.used)).sum();
    let shares: f64 = usable().map(Candidate::share).sum();
    let is_hot = |candidate: &Candidate| {
        let used_then = f64::from(candidate.used) + 1.0;
        let bound = (HOT_FACTOR * (used + 1.0) * candidate.share() / shares.max(EPSILON)).ceil();
        used_then > bound.max(HOT_FROM * f64::from(candidate.limit))
    };
    candidates
        .iter()
        .enumerate()
        .filter(|(_, candidate)| in_tier(candidate))
        .max_by(|(_, left), (_, right)| {
            let rank = |c: &Candidate| (!is_hot(c), rendezvous_score(key, c));
            let ((left_cool, left), (right_cool, right)) = (rank(left), rank(right));
            left_cool.cmp(&right_cool).then(left.total_cmp(&right))
        })
        .map(|(index, _)| index)
}

fn rendezvous_score(key: u64, candidate: &Candidate) -> f64 {
    let uniform = unit_interval(mix(key ^ mix(candidate.hash))).max(f64::MIN_POSITIVE);
    -candidate.share() / uniform.ln()
}

/// A number from 0 up to 1.
#[expect(
    clippy::cast_precision_loss,
    reason = "53 bits fit into the mantissa of a double"
)]
fn unit_interval(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of the number.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests;
