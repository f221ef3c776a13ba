//! Whole runs.

use std::time::Duration;

use tidegate_simulation::{RunReport, Scenario, run};

/// A small fleet on which much fails.
pub(crate) fn small(seed: u64) -> Scenario {
    Scenario {
        jobs: 400,
        director_faults: Some(Duration::from_secs(40)),
        server_faults: Some(Duration::from_secs(20)),
        ..Scenario::new(seed)
    }
}

pub(crate) fn run_quietly(scenario: Scenario) -> RunReport {
    run(scenario, None).expect("a runtime can be created")
}

#[test]
fn jobs_end_once_without_faults() {
    let scenario = Scenario {
        jobs: 300,
        ..Scenario::new(1)
    };
    let report = run_quietly(scenario.without_faults());
    assert_eq!(report.violations, []);
    assert_eq!(report.numbers.inserted, 300);
    assert!(report.numbers.executions <= 300);
    assert!(report.numbers.succeeded > 250);
}

#[test]
fn invariants_hold_with_faults() {
    let (mut crashes, mut partitions) = (0, 0);
    for seed in 1..=4 {
        let report = run_quietly(small(seed));
        assert_eq!(report.violations, [], "seed {seed}");
        crashes += report.numbers.crashes;
        partitions += report.numbers.partitions;
        assert!(report.numbers.executions > 300, "seed {seed}");
    }
    assert!(crashes > 0 && partitions > 0);
}

/// No process of the API ran while the queue lost everything, so none saw that its epoch changed.
#[test]
fn a_queue_that_was_lost_unseen_is_filled_again() {
    let report = run_quietly(Scenario {
        jobs: 1000,
        server_faults: Some(Duration::from_secs(6)),
        ..small(4)
    });
    assert_eq!(report.violations, []);
}

/// The queue loses everything again while the jobs of its first loss are pushed: marks that arrive late must not
/// hide the jobs of the second loss.
#[test]
fn a_queue_that_is_lost_twice_in_a_row_is_filled_again() {
    let report = run_quietly(Scenario {
        apis: 8,
        directors: 10,
        jobs: 6000,
        load: 1.5,
        server_faults: Some(Duration::from_secs(2)),
        ..Scenario::new(2)
    });
    assert_eq!(report.violations, []);
}

#[test]
fn a_seed_reproduces_a_run() {
    let [first, second] = [run_quietly(small(5)), run_quietly(small(5))];
    assert_eq!(
        (first.hash, first.events, first.simulated),
        (second.hash, second.events, second.simulated)
    );
    let other = run_quietly(small(6));
    assert_ne!(first.hash, other.hash, "another seed is another run");
}
