//! Planted bugs: deliberate faults that prove that the torture program finds them.
//!
//! They exist only in builds with the feature `planted-bugs`, where `enable` switches one on.
//! Without the feature, [`planted!`](crate::planted!) expands to nothing.

#[cfg(feature = "planted-bugs")]
mod enabled {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, OnceLock, PoisonError};

    use bytes::Bytes;

    use super::Planted;

    static ENABLED: OnceLock<Planted> = OnceLock::new();

    /// Enables the bug with this name for the rest of the process; `false` when there is none.
    pub fn enable(name: &str) -> bool {
        let bug = Planted::ALL.iter().find(|(known, _)| *known == name);
        bug.is_some_and(|(_, bug)| ENABLED.set(*bug).is_ok())
    }

    /// Whether this bug is enabled.
    pub fn is_enabled(bug: Planted) -> bool {
        ENABLED.get() == Some(&bug)
    }

    /// True at every third call, if this bug is enabled.
    pub fn is_enabled_sometimes(bug: Planted) -> bool {
        static CALLS: AtomicUsize = AtomicUsize::new(1);
        is_enabled(bug) && CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(3)
    }

    /// The bytes of the previous call; those of this one if it is the first.
    pub fn previous(current: Bytes) -> Bytes {
        static PREVIOUS: Mutex<Option<Bytes>> = Mutex::new(None);
        let mut previous = PREVIOUS.lock().unwrap_or_else(PoisonError::into_inner);
        previous.replace(current.clone()).unwrap_or(current)
    }
}

#[cfg(feature = "planted-bugs")]
pub use enabled::{enable, is_enabled, is_enabled_sometimes, previous};

/// Runs a statement, or replaces a local variable, when a planted bug is enabled:
///
/// ```ignore
/// planted!(LostMessage, continue);
/// planted!(RepeatedPut, let on_duplicate = OnDuplicateId::Refuse);
/// planted!(sometimes LostWebhook if has_webhook, return Ok(()));
/// ```
///
/// With `sometimes`, every third time that the condition holds. Expands to nothing without the feature `planted-bugs`.
#[cfg(feature = "planted-bugs")]
#[macro_export]
macro_rules! planted {
    (sometimes $bug:ident if $condition:expr, let $name:ident = $value:expr) => {
        let $name = if $condition
            && $crate::planted::is_enabled_sometimes($crate::planted::Planted::$bug)
        {
            $value
        } else {
            $name
        };
    };
    (sometimes $bug:ident if $condition:expr, $($statement:tt)+) => {
        if $condition && $crate::planted::is_enabled_sometimes($crate::planted::Planted::$bug) {
            $($statement)+;
        }
    };
    ($bug:ident, let $name:ident = $value:expr) => {
        let $name = if $crate::planted::is_enabled($crate::planted::Planted::$bug) { $value } else { $name };
    };
    ($bug:ident, $($statement:tt)+) => {
        if $crate::planted::is_enabled($crate::planted::Planted::$bug) { $($statement)+; }
    };
}

/// Expands to nothing: this build has no planted bugs.
#[cfg(not(feature = "planted-bugs"))]
#[macro_export]
macro_rules! planted {
    ($($planted:tt)*) => {};
}

/// A bug that can be enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The slot of a job that failed is not released.
    LeakedPermit,
    /// The terminal webhook of a job is sometimes not sent.
    LostWebhook,
    /// The webhook of the first output value shows the end, if the job has ended by then.
    EarlyEnd,
    /// A lookup of an ended job sometimes shows it as running.
    StaleState,
    /// A cancel is acknowledged and not passed on.
    DeafCancel,
    /// A repeated `PUT` runs the job again.
    RepeatedPut,
    /// Log lines are attributed to the next job that prints.
    ForeignLogs,
    /// A job returns the output of the previous one.
    ForeignOutput,
    /// A job that failed is sometimes reported as succeeded.
    FalseSuccess,
    /// A job is sometimes accepted and never run.
    ForgottenJob,
    /// Ids that the server generates repeat.
    RepeatedId,
    /// The health check waits while jobs run.
    SlowHealth,
    /// A child gets more concurrent jobs than it should.
    ExtraSlot,
    /// A value of a stream is dropped.
    LostChunk,
    /// The queue of an account is served last in, first out.
    Overtaking,
    /// The account that joined the queue last is always served first.
    Unfair,
    /// A lookup of a canceled job shows another end.
    TwoEnds,
    /// Every job leaks a file descriptor.
    LeakedDescriptor,
    /// A child that died is not replaced.
    NotReplaced,
    /// A job is accepted without being recorded.
    UnrecordedJob,
    /// The pending webhooks of a killed server are not sent by the next one.
    LostMessage,
    /// A webhook that is sent again after a restart gets another id.
    NewMessageId,
    /// The jobs that waited when the server was killed are resumed in another order.
    MixedQueue,
    /// A cancel is acknowledged and not recorded.
    ForgottenCancel,
    /// A job whose input was reloaded from the store gets that of the previous one.
    ForeignInput,
    /// The end of a job is recorded whichever lease its director has.
    LeaseWithoutFence,
    /// A director gets the reply to the end of a job before the end is recorded.
    AckBeforeCommit,
    /// The deadline of a waiting job is removed from the queue before its job is ended.
    LostDeadline,
    /// A webhook that a process has claimed is never sent by another one.
    EndlessClaim,
    /// A cancel reaches the director of a job, and is not recorded.
    CancelInMemory,
    /// Jobs are not queued again when the queue has lost its entries.
    LostEntries,
}

impl Planted {
    /// All bugs, with the names that enable them.
    pub const ALL: [(&'static str, Self); 31] = [
        ("leaked-permit", Self::LeakedPermit),
        ("lost-webhook", Self::LostWebhook),
        ("early-end", Self::EarlyEnd),
        ("stale-state", Self::StaleState),
        ("deaf-cancel", Self::DeafCancel),
        ("repeated-put", Self::RepeatedPut),
        ("foreign-logs", Self::ForeignLogs),
        ("foreign-output", Self::ForeignOutput),
        ("false-success", Self::FalseSuccess),
        ("forgotten-job", Self::ForgottenJob),
        ("repeated-id", Self::RepeatedId),
        ("slow-health", Self::SlowHealth),
        ("extra-slot", Self::ExtraSlot),
        ("lost-chunk", Self::LostChunk),
        ("overtaking", Self::Overtaking),
        ("unfair", Self::Unfair),
        ("two-ends", Self::TwoEnds),
        ("leaked-descriptor", Self::LeakedDescriptor),
        ("not-replaced", Self::NotReplaced),
        ("unrecorded-job", Self::UnrecordedJob),
        ("lost-message", Self::LostMessage),
        ("new-message-id", Self::NewMessageId),
        ("mixed-queue", Self::MixedQueue),
        ("forgotten-cancel", Self::ForgottenCancel),
        ("foreign-input", Self::ForeignInput),
        ("lease-without-fence", Self::LeaseWithoutFence),
        ("ack-before-commit", Self::AckBeforeCommit),
        ("lost-deadline", Self::LostDeadline),
        ("endless-claim", Self::EndlessClaim),
        ("cancel-in-memory", Self::CancelInMemory),
        ("lost-entries", Self::LostEntries),
    ];
}
