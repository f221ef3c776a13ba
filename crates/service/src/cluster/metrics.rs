//! What this API process has done for the directors of its cluster.

use tidegate_core::counters::{Counter, Counters};
use tidegate_core::label;

/// The reply to a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRequestResult {
    /// The director may run the job.
    Granted,
    /// Another director runs it.
    HeldByAnother,
    /// The job has ended, or is unknown.
    Ended,
    /// A cancel was recorded: the job was ended.
    Canceled,
    /// The deadline had passed: the job was ended.
    Overdue,
    /// The job was started as often as it may be: it was ended.
    Exhausted,
    /// A director with the same name has started later.
    Superseded,
}

label!(LeaseRequestResult: Granted = "granted", HeldByAnother = "held_by_another", Ended = "ended",
    Canceled = "canceled", Overdue = "overdue", Exhausted = "exhausted", Superseded = "superseded");

/// The counters of an API process.
#[derive(Debug, Default)]
pub struct ClusterMetrics {
    /// Requests for leases.
    pub lease_requests: Counters<LeaseRequestResult>,
    /// Leases after the first of their job.
    pub reruns: Counter,
    /// Leases that expired, because their director was lost.
    pub lost_leases: Counter,
    /// Jobs that were ended because their director was lost.
    pub lost_jobs: Counter,
    /// Jobs that were pushed again, because they were not known to be in the queue.
    pub requeued: Counter,
}

#[cfg(test)]
mod tests {
    use tidegate_core::counters::MetricLabel;

    use super::*;

    #[test]
    fn labels_are_listed_in_the_order_of_their_declaration() {
        for (index, label) in LeaseRequestResult::ALL.iter().enumerate() {
            assert_eq!(label.index(), index, "{}", label.as_str());
        }
    }
}
