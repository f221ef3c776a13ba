//! Planted bugs: deliberate faults of the simulated servers, to prove that the checker finds them.

use std::fmt;
use std::str::FromStr;

/// A bug that a run can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// The store accepts the end of a job from any lease.
    NoFence,
    /// The store grants a lease although another director holds one, and the queue delivers entries twice.
    DoubleLease,
    /// The store grants leases of ended jobs.
    LeaseAfterEnd,
    /// The store confirms the end of a job and does not store it.
    LostEnd,
    /// The store confirms a cancel and does not store it, and no director gets the request to stop.
    ForgottenCancel,
    /// Leases are live for ever.
    NoExpiry,
    /// The store sometimes stores an end without its message.
    LostMessage,
    /// A message gets another id for each attempt.
    NewMessageId,
    /// The queue removes an entry when it is taken.
    AckBeforeCommit,
    /// The queue sometimes confirms a push and forgets it.
    LostPush,
    /// The store grants leases of overdue jobs, and the queue reports no deadlines.
    IgnoredDeadline,
    /// The queue delivers entries twice. This breaks nothing: leases decide.
    DoubleDelivery,
    /// A director runs one job more than it has slots.
    ExtraSlot,
}

impl PlantedBug {
    /// All bugs, with their names on the command line.
    pub const ALL: [(&'static str, Self); 13] = [
        ("no-fence", Self::NoFence),
        ("double-lease", Self::DoubleLease),
        ("lease-after-end", Self::LeaseAfterEnd),
        ("lost-end", Self::LostEnd),
        ("forgotten-cancel", Self::ForgottenCancel),
        ("no-expiry", Self::NoExpiry),
        ("lost-message", Self::LostMessage),
        ("new-message-id", Self::NewMessageId),
        ("ack-before-commit", Self::AckBeforeCommit),
        ("lost-push", Self::LostPush),
        ("ignored-deadline", Self::IgnoredDeadline),
        ("double-delivery", Self::DoubleDelivery),
        ("extra-slot", Self::ExtraSlot),
    ];
}

impl fmt::Display for PlantedBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, bug)| bug == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

/// A name that no planted bug has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownBug(String);

impl fmt::Display for UnknownBug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = PlantedBug::ALL.iter().map(|(name, _)| *name).collect();
        write!(
            f,
            "there is no planted bug `{}`; choose one of {}",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownBug {}

impl FromStr for PlantedBug {
    type Err = UnknownBug;

    fn from_str(name: &str) -> Result<Self, UnknownBug> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, bug)| *bug)
            .ok_or_else(|| UnknownBug(name.to_owned()))
    }
}
