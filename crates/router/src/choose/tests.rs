//! What the choice guarantees for all fleets and requests.

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;

fn candidate(limit: u32, hash: u64) -> Candidate {
    Candidate {
        used: 0,
        limit,
        weight: 1.0,
        state: HealthState::Healthy,
        local: true,
        excluded: false,
        reported_queue: 0,
        latency: None,
        hash: mix(hash + 1),
    }
}

fn query(turn: u64) -> ChoiceQuery {
    ChoiceQuery {
        affinity: None,
        local_only: false,
        turn,
    }
}

fn session(key: u64) -> ChoiceQuery {
    ChoiceQuery {
        affinity: Some(mix(key)),
        ..query(0)
    }
}

/// How often each of the candidates is chosen in 1,000 requests that end at once.
fn shares_of_sequential_requests(candidates: &[Candidate]) -> Vec<usize> {
    let mut chosen = vec![0; candidates.len()];
    for turn in 0..1000 {
        if let Choice::Lease(index) = choose(&query(turn), candidates) {
            chosen[index] += 1;
        }
    }
    chosen
}

#[test]
fn endpoints_fill_up_in_proportion_to_their_permits() {
    let mut fleet = [1, 2, 4].map(|limit| candidate(limit * 10, u64::from(limit)));
    for turn in 0..35 {
        let Choice::Lease(index) = choose(&query(turn), &fleet) else {
            panic!("half of the permits are free");
        };
        fleet[index].used += 1;
    }
    assert_eq!(fleet.map(|endpoint| endpoint.used), [5, 10, 20]);
}

#[test]
fn idle_endpoints_take_turns_by_permits_and_weight() {
    let shares = shares_of_sequential_requests(&[candidate(8, 1), candidate(8, 2)]);
    assert!(
        shares.iter().all(|share| (495..=505).contains(share)),
        "{shares:?}"
    );

    let heavy = Candidate {
        weight: 3.0,
        ..candidate(8, 1)
    };
    let shares = shares_of_sequential_requests(&[heavy, candidate(8, 2)]);
    assert!((745..=755).contains(&shares[0]), "{shares:?}");
}

#[test]
fn of_equally_loaded_endpoints_the_shorter_queue_and_the_lower_latency_win() {
    let slow = Candidate {
        latency: Some(Duration::from_millis(500)),
        ..candidate(8, 1)
    };
    let fast = Candidate {
        latency: Some(Duration::from_millis(20)),
        ..candidate(8, 2)
    };
    assert_eq!(shares_of_sequential_requests(&[slow, fast]), [0, 1000]);
    let busy = Candidate {
        reported_queue: 3,
        ..fast
    };
    assert_eq!(shares_of_sequential_requests(&[slow, busy]), [1000, 0]);
    let loaded = Candidate { used: 1, ..fast };
    assert_eq!(shares_of_sequential_requests(&[slow, loaded]), [1000, 0]);
}

#[test]
fn an_endpoint_that_backs_off_is_used_only_if_no_healthy_one_exists() {
    let until = Instant::now();
    let backing_off = Candidate {
        state: HealthState::BackingOff { until },
        ..candidate(8, 1)
    };
    let full = Candidate {
        used: 8,
        ..candidate(8, 2)
    };
    assert_eq!(choose(&query(0), &[backing_off, full]), Choice::Wait);
    assert_eq!(choose(&query(0), &[backing_off]), Choice::Lease(0));
    let tried = Candidate {
        excluded: true,
        ..backing_off
    };
    assert_eq!(choose(&query(0), &[tried, backing_off]), Choice::Lease(1));
}

#[test]
fn requests_wait_for_the_result_of_a_trial() {
    let trying = Candidate {
        state: HealthState::TrialRunning,
        ..candidate(8, 1)
    };
    assert_eq!(choose(&query(0), &[trying]), Choice::Wait);
    assert_eq!(
        choose(&query(0), &[trying, candidate(1, 2)]),
        Choice::Lease(1)
    );
}

#[test]
fn another_site_is_used_when_the_local_endpoints_are_full() {
    let remote = Candidate {
        local: false,
        ..candidate(64, 1)
    };
    let full = Candidate {
        used: 1,
        ..candidate(1, 2)
    };
    assert_eq!(
        choose(&query(0), &[remote, candidate(1, 2)]),
        Choice::Lease(1)
    );
    assert_eq!(choose(&query(0), &[remote, full]), Choice::Lease(0));
    let local_only = ChoiceQuery {
        local_only: true,
        ..query(0)
    };
    assert_eq!(choose(&local_only, &[remote, full]), Choice::Wait);
    assert_eq!(choose(&local_only, &[remote]), Choice::NoEndpoint);
}

#[test]
fn removing_one_of_five_endpoints_moves_only_its_sessions() {
    let five: Vec<Candidate> = (0..5).map(|hash| candidate(8, hash)).collect();
    let four = &five[..4];
    let mut moved = 0;
    for key in 0..10_000 {
        let Choice::Lease(before) = choose(&session(key), &five) else {
            panic!("all endpoints are free");
        };
        let after = choose(&session(key), four);
        if before < 4 {
            assert_eq!(after, Choice::Lease(before), "session {key}");
        } else {
            moved += 1;
        }
    }
    assert!(
        (1500..=2500).contains(&moved),
        "{moved} of 10000 sessions moved"
    );
}

#[test]
fn a_session_leaves_its_endpoint_only_while_that_is_hot() {
    let mut fleet: Vec<Candidate> = (0..4).map(|hash| candidate(8, hash)).collect();
    let Choice::Lease(home) = choose(&session(7), &fleet) else {
        panic!("all endpoints are free");
    };
    for used in 0..4 {
        fleet[home].used = used;
        assert_eq!(choose(&session(7), &fleet), Choice::Lease(home), "{used}");
    }
    fleet[home].used = 4;
    assert_ne!(choose(&session(7), &fleet), Choice::Lease(home));
    for endpoint in &mut fleet {
        endpoint.used = 4;
    }
    assert_eq!(
        choose(&session(7), &fleet),
        Choice::Lease(home),
        "all are equally loaded"
    );
}

fn any_candidate() -> impl Strategy<Value = Candidate> {
    let until = Instant::now();
    let state = prop_oneof![
        4 => Just(HealthState::Healthy),
        1 => Just(HealthState::BackingOff { until }),
        1 => Just(HealthState::Open { until }),
        1 => Just(HealthState::Trial),
        1 => Just(HealthState::TrialRunning),
        1 => Just(HealthState::Unhealthy),
        1 => Just(HealthState::Draining),
    ];
    let latency = proptest::option::of((0..10_000_u64).prop_map(Duration::from_micros));
    let flags = (any::<bool>(), proptest::bool::weighted(0.2));
    let counts = (0..5_u32, 0..5_u32, 0..3_u32, 0.0..4.0_f64);
    (counts, state, flags, latency, any::<u64>()).prop_map(
        |((used, limit, reported_queue, weight), state, (local, excluded), latency, hash)| {
            Candidate {
                used,
                limit,
                weight,
                state,
                local,
                excluded,
                reported_queue,
                latency,
                hash,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_request_is_leased_waits_or_has_no_endpoint(
        candidates in proptest::collection::vec(any_candidate(), 0..8),
        affinity in proptest::option::of(any::<u64>()),
        local_only: bool,
        turn: u64,
    ) {
        let query = ChoiceQuery { affinity, local_only, turn };
        let allowed = |c: &Candidate| {
            !c.excluded && (c.local || !local_only) && c.limit > 0 && c.state.is_usable()
        };
        let free = |c: &Candidate| allowed(c) && c.used < c.limit;
        match choose(&query, &candidates) {
            Choice::Lease(index) => {
                let chosen = &candidates[index];
                prop_assert!(free(chosen) && chosen.state != HealthState::TrialRunning);
                if !chosen.is_healthy() {
                    prop_assert!(!candidates.iter().any(|c| allowed(c) && c.is_healthy()));
                }
                if !chosen.local {
                    let same = |c: &Candidate| c.is_healthy() == chosen.is_healthy();
                    let trying = |c: &Candidate| c.state == HealthState::TrialRunning;
                    prop_assert!(
                        !candidates.iter().any(|c| c.local && free(c) && same(c) && !trying(c))
                    );
                }
            }
            Choice::Wait => {
                prop_assert!(candidates.iter().any(allowed));
                prop_assert!(!candidates.iter().any(|c| free(c) && c.is_healthy()));
            }
            Choice::NoEndpoint => prop_assert!(!candidates.iter().any(allowed)),
        }
    }

    #[test]
    fn a_key_moves_only_with_its_endpoint(
        limits in proptest::collection::vec(1..64_u32, 2..9),
        key: u64,
        removed: proptest::sample::Index,
    ) {
        let hashes = 0_u64..;
        let fleet: Vec<Candidate> =
            limits.iter().zip(hashes).map(|(limit, hash)| candidate(*limit, hash)).collect();
        let query = session(key);
        let Choice::Lease(before) = choose(&query, &fleet) else {
            panic!("all endpoints are free");
        };
        let removed = removed.index(fleet.len());
        let mut rest = fleet;
        rest.remove(removed);
        if before != removed {
            let moved = usize::from(before > removed);
            prop_assert_eq!(choose(&query, &rest), Choice::Lease(before - moved));
        }
    }
}
