//! Leases: the right of one attempt to run a job and to record its end.
//!
//! A lease is taken before the model starts, and each lease of a job has a higher number than the one
//! before it. The store accepts the end of a job only from the last lease. A call whose result was
//! lost can be repeated: the nonce identifies it.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Account, JobId};

/// A random number that identifies one lease, and the end that is recorded under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub u128);

impl Serialize for Nonce {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:032x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Nonce {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(deserializer)?;
        u128::from_str_radix(&digits, 16)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// The fencing token of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The number of the attempt; the first is 1, and 0 means that the job was never leased.
    pub attempt: u32,
    /// Distinguishes two requests for the same attempt.
    pub nonce: Nonce,
}

/// A request for the lease of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseRequest {
    /// The account that owns the job.
    pub account: Account,
    /// The id of the job.
    pub id: JobId,
    /// A repeated request with the same nonce gets the same lease.
    pub nonce: Nonce,
    /// The last attempt that is known to be over; 0 if there was none. If the job has been leased
    /// since, the request is refused.
    pub after_attempt: u32,
    /// When the model begins.
    pub began_at: Timestamp,
    /// What the lease survives when the call returns.
    pub durability: LeaseDurability,
}

/// What a lease survives when it is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseDurability {
    /// A crash of the process. The lease is granted without waiting for the disk. It is committed
    /// with the end of the job, or by a repeated request with [`LeaseDurability::Machine`].
    Process,
    /// A crash of the machine.
    Machine,
}

/// The result of a request for a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseResult {
    /// The requester may run the job.
    Granted(Fence),
    /// Another request got the lease of this attempt.
    HeldByAnother,
    /// A cancel of the job is recorded: it must end as canceled.
    CancelRequested,
    /// The job has ended.
    Ended,
    /// There is no such job.
    Unknown,
}
