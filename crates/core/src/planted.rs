//! Bugs on purpose: the torture program is worth something only if it finds them.
//!
//! They exist in unoptimised builds alone, where `TIDEGATE_PLANT=name` switches one on. In a release
//! every question here is answered with a constant `false`, and nothing is left of them. This is the
//! one place of the room that looks at the environment.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A bug that can be switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// The slot of a job that failed is not given back.
    LeakedPermit,
    /// The last webhook of a job is sometimes not sent.
    LostWebhook,
    /// The message about the first value tells the end already, if that has come.
    EarlyEnd,
    /// Who looks a finished job up is sometimes told that it still runs.
    StaleState,
    /// A cancel is acknowledged and not passed on.
    DeafCancel,
    /// A repeated `PUT` runs again.
    RepeatedPut,
    /// Log lines are given to the next job that prints.
    ForeignLogs,
    /// A job is answered with the output of the one before.
    ForeignOutput,
    /// A job that failed is sometimes reported as succeeded.
    FalseSuccess,
    /// A job is sometimes accepted and never run.
    ForgottenJob,
    /// Ids that the server makes come again.
    RepeatedId,
    /// The health check waits while jobs run.
    SlowHealth,
    /// A child gets more jobs at once than it should.
    ExtraSlot,
    /// A chunk of a stream is left out.
    LostChunk,
    /// The last in the line is the first to be served.
    Overtaking,
    /// The account that came last has its turn first, again and again.
    Unfair,
    /// Looking a canceled job up shows another end.
    TwoEnds,
    /// Every job leaves a descriptor open.
    LeakedDescriptor,
    /// A child that died is not replaced.
    NotReplaced,
    /// A job is accepted without being written down.
    UnwrittenJob,
    /// What a killed server was about to tell is not told by the next one.
    LostLetter,
    /// A message that is sent again after a restart gets another id.
    AnotherLetter,
    /// What waited when the server was killed waits in another order then.
    MixedQueue,
    /// That a job was canceled is told and not written down.
    ForgottenCancel,
    /// A job whose input waited in the store gets that of the one before.
    ForeignInput,
}

impl Planted {
    /// All of them, with the names that switch them on.
    pub const ALL: [(&'static str, Self); 25] = [
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
        ("unwritten-job", Self::UnwrittenJob),
        ("lost-letter", Self::LostLetter),
        ("another-letter", Self::AnotherLetter),
        ("mixed-queue", Self::MixedQueue),
        ("forgotten-cancel", Self::ForgottenCancel),
        ("foreign-input", Self::ForeignInput),
    ];
}

/// Whether this bug is switched on.
#[inline]
pub fn planted(bug: Planted) -> bool {
    cfg!(debug_assertions) && chosen() == Some(bug)
}

/// Every third time, if this bug is switched on.
#[inline]
pub fn planted_now_and_then(bug: Planted) -> bool {
    static ASKED: AtomicUsize = AtomicUsize::new(1);
    planted(bug) && ASKED.fetch_add(1, Ordering::Relaxed).is_multiple_of(3)
}

/// The text of whoever came before, if this bug is switched on and somebody did.
#[inline]
pub fn the_one_before(bug: Planted, mine: &str) -> Option<String> {
    static BEFORE: Mutex<Option<String>> = Mutex::new(None);
    if !planted(bug) {
        return None;
    }
    BEFORE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .replace(mine.to_owned())
}

fn chosen() -> Option<Planted> {
    static CHOSEN: OnceLock<Option<Planted>> = OnceLock::new();
    *CHOSEN.get_or_init(|| {
        let name = std::env::var("TIDEGATE_PLANT").ok()?;
        Planted::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bug)| *bug)
    })
}
