//! The checker finds every planted bug, and names the invariant that it breaks.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_simulation::{PlantedBug, Scenario};

use crate::runs::{run_quietly, small};

/// Which of these invariants the runs of the first seeds break.
fn broken(bug: PlantedBug, expected: &[&'static str]) -> BTreeSet<&'static str> {
    for seed in 1..=20 {
        let report = run_quietly(Scenario {
            planted: Some(bug),
            jobs: 150,
            // Long enough that a lost execution ends while the next one runs.
            run_time: Duration::from_secs(8),
            director_faults: Some(Duration::from_secs(20)),
            ..small(seed)
        });
        let violations = report.violations.iter();
        let broken: BTreeSet<&'static str> = violations
            .map(|violation| violation.invariant)
            .filter(|invariant| expected.contains(invariant))
            .collect();
        if !broken.is_empty() {
            return broken;
        }
    }
    BTreeSet::new()
}

macro_rules! finds {
    ($($name:ident: $bug:ident breaks $invariant:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let broken = broken(PlantedBug::$bug, &[$invariant]);
                assert!(broken.contains($invariant), "no run broke {}", $invariant);
            }
        )*
    };
}

finds! {
    an_end_of_an_old_lease: NoFence breaks "I22";
    two_leases_of_one_job: DoubleLease breaks "I05";
    a_lease_after_the_end: LeaseAfterEnd breaks "I06";
    an_end_that_is_not_stored: LostEnd breaks "I05";
    a_cancel_that_is_not_stored: ForgottenCancel breaks "I07";
    leases_that_never_expire: NoExpiry breaks "I01";
    a_message_that_is_not_stored: LostMessage breaks "I04";
    a_message_with_two_ids: NewMessageId breaks "C6";
    an_entry_that_is_removed_too_early: AckBeforeCommit breaks "I01";
    a_push_that_is_forgotten: LostPush breaks "I01";
    a_deadline_that_is_ignored: IgnoredDeadline breaks "I25";
    a_job_too_many_on_a_director: ExtraSlot breaks "I09";
}

/// Leases decide who runs a job, however often the queue delivers it.
#[test]
fn entries_that_are_delivered_twice_break_nothing() {
    let report = run_quietly(Scenario {
        planted: Some(PlantedBug::DoubleDelivery),
        ..small(1)
    });
    assert_eq!(report.violations, []);
}

#[test]
fn every_planted_bug_has_a_test() {
    let source = include_str!("planted_bugs.rs");
    for (name, bug) in PlantedBug::ALL {
        if bug == PlantedBug::DoubleDelivery {
            continue;
        }
        assert!(source.contains(&format!(": {bug:?} breaks")), "{name}");
    }
}
