//! The three outcomes: leased, queued, full.

use std::time::Duration;

use tidegate_router::FullReason;
use tidegate_router::fleet::Algorithm;

use crate::testkit::{TestFleet, answer, ask, endpoint, full, leased, queue, queued};

#[tokio::test(start_paused = true)]
async fn an_endpoint_never_runs_more_requests_than_its_limit() {
    let fleet = TestFleet::with_model(queue(Algorithm::Fifo, 1), &[2]);
    let group = fleet.group("m");
    let first = leased(group.admit(ask("a")));
    let _second = leased(group.admit(ask("a")));
    let mut third = queued(group.admit(ask("a")));
    assert_eq!(fleet.endpoint(0).used(), 2);
    assert!(answer(&mut third).is_none());
    drop(first);
    let third = answer(&mut third).expect("its turn").expect("a permit");
    assert_eq!(fleet.endpoint(0).used(), 2);
    drop(third);
    assert_eq!(fleet.endpoint(0).used(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_finds_a_free_permit_is_not_queued() {
    let fleet = TestFleet::with_model(queue(Algorithm::Fair, 4), &[1]);
    let group = fleet.group("m");
    for _ in 0..10 {
        let permit = leased(group.admit(ask("a")));
        assert_eq!((permit.waited(), group.queue_len()), (Duration::ZERO, 0));
    }
    assert_eq!(group.statistics().full_fraction, 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_at_once() {
    let fleet = TestFleet::with_model(queue(Algorithm::Fifo, 1), &[1]);
    let group = fleet.group("m");
    let _running = leased(group.admit(ask("a")));
    let _waiting = queued(group.admit(ask("a")));
    let refused = full(group.admit(ask("a")));
    assert_eq!(refused.reason, FullReason::QueueFull);
    assert_eq!(group.statistics().full_fraction, 1.0 / 3.0);
}

#[tokio::test(start_paused = true)]
async fn filling_one_model_leaves_another_free() {
    let mut fleet = TestFleet::default();
    fleet.set_model("m", queue(Algorithm::Fifo, 1), &[endpoint(0, 1)]);
    fleet.set_model("n", queue(Algorithm::Fair, 1), &[endpoint(1, 3)]);
    fleet.apply();
    let (m, n) = (fleet.group("m"), fleet.group("n"));
    let _running = leased(m.admit(ask("a")));
    let _waiting = queued(m.admit(ask("a")));
    full(m.admit(ask("a")));
    let _others = [(); 3].map(|()| leased(n.admit(ask("a"))));
    let _waiting = queued(n.admit(ask("a")));
}
