//! The counters and the state of a director, which its `/metrics` shows.

use crate::counters::{Counter, Counters};
use crate::label;

/// The reply to a director's request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRequestReply {
    /// The director runs the job.
    Granted,
    /// Another director runs it.
    HeldByAnother,
    /// The job has ended.
    Over,
    /// Another director uses the name.
    Superseded,
    /// The API refused the request.
    Refused,
}

label!(LeaseRequestReply: Granted = "granted", HeldByAnother = "held_by_another", Over = "over",
    Superseded = "superseded", Refused = "refused");

/// The result of the run of a job that a director has leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeasedRunEnd {
    /// Its end is committed.
    Committed,
    /// Another director has run it, or it was ended by the API.
    ByAnother,
    /// It was stopped, because its lease was lost.
    Lost,
    /// It was stopped, because no API process could be reached.
    Isolated,
    /// It was given back, because the director stops or the model refused it.
    GivenBack,
}

label!(LeasedRunEnd: Committed = "committed", ByAnother = "by_another", Lost = "lost",
    Isolated = "isolated", GivenBack = "given_back");

/// Whether a heartbeat was replied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatOutcome {
    /// An API process replied.
    Replied,
    /// None did.
    Failed,
}

label!(HeartbeatOutcome: Replied = "replied", Failed = "failed");

/// The counters of a director.
#[derive(Debug, Default)]
pub struct DirectorMetrics {
    /// Queue entries that it has taken.
    pub taken: Counter,
    /// Queue entries that it has put back.
    pub returned: Counter,
    /// Requests for leases.
    pub leases: Counters<LeaseRequestReply>,
    /// Jobs that it has leased and does not run any more.
    pub runs: Counters<LeasedRunEnd>,
    /// Heartbeats.
    pub heartbeats: Counters<HeartbeatOutcome>,
    /// Interim webhook messages that the API has accepted.
    pub updates: Counter,
    /// Events of running jobs that the API has accepted.
    pub events: Counter,
    /// How often no API process replied for the length of a lease.
    pub isolations: Counter,
}

/// The state of a director.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectorState {
    /// Whether an API process replied to the last heartbeat.
    pub is_connected: bool,
    /// Whether none replied for the length of a lease.
    pub is_isolated: bool,
    /// The jobs that it holds the lease of.
    pub leases: usize,
    /// The queue entries that it has taken and not acknowledged.
    pub messages: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::MetricLabel;

    fn assert_indexes_match<L: MetricLabel>() {
        for (index, label) in L::ALL.iter().enumerate() {
            assert_eq!(label.index(), index, "{}", label.as_str());
        }
    }

    #[test]
    fn labels_are_listed_in_the_order_of_their_declaration() {
        assert_indexes_match::<LeaseRequestReply>();
        assert_indexes_match::<LeasedRunEnd>();
        assert_indexes_match::<HeartbeatOutcome>();
    }
}
