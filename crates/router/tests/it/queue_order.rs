//! The order in which waiters are served, and what a reload does to them.

use tidegate_router::fleet::{Algorithm, QueueConfig};
use tidegate_router::{EndpointGroup, FullReason, PermitWaiter};

use crate::testkit::{TestFleet, answer, ask, endpoint, leased, order_of_service, queue, queued};

/// Waiters of these accounts, in this order.
fn waiters<'a>(
    group: &std::sync::Arc<EndpointGroup>,
    accounts: &[&'a str],
) -> Vec<(&'a str, PermitWaiter)> {
    let wait = |account: &&'a str| (*account, queued(group.admit(ask(account))));
    accounts.iter().map(wait).collect()
}

#[tokio::test(start_paused = true)]
async fn fifo_serves_in_order_of_arrival() {
    let fleet = TestFleet::with_model(queue(Algorithm::Fifo, 20), &[1]);
    let group = fleet.group("m");
    let running = leased(group.admit(ask("x")));
    let waiters = waiters(&group, &["a", "a", "a", "b", "a", "b"]);
    assert_eq!(order_of_service(running, waiters), "a a a b a b");
}

#[tokio::test(start_paused = true)]
async fn fair_lets_accounts_take_turns() {
    let fleet = TestFleet::with_model(queue(Algorithm::Fair, 20), &[1]);
    let group = fleet.group("m");
    let running = leased(group.admit(ask("x")));
    let waiters = waiters(&group, &["a", "a", "a", "a", "b", "b"]);
    assert_eq!(order_of_service(running, waiters), "a b a b a a");
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_the_algorithm_and_loses_no_waiter() {
    let mut fleet = TestFleet::with_model(queue(Algorithm::Fifo, 20), &[1]);
    let group = fleet.group("m");
    let running = leased(group.admit(ask("x")));
    let waiters = waiters(&group, &["a", "a", "a", "b"]);
    fleet.set_model("m", queue(Algorithm::Fair, 20), &[endpoint(0, 1)]);
    fleet.apply();
    assert_eq!(order_of_service(running, waiters), "a b a a");
}

#[tokio::test(start_paused = true)]
async fn waiters_that_do_not_fit_after_a_reload_are_refused() {
    let mut fleet = TestFleet::with_model(queue(Algorithm::Fifo, 3), &[1]);
    let group = fleet.group("m");
    let _running = leased(group.admit(ask("x")));
    let mut waiters = waiters(&group, &["a", "b", "c"]);
    let smaller = QueueConfig {
        capacity: 1,
        ..queue(Algorithm::Fair, 1)
    };
    fleet.set_model("m", smaller, &[endpoint(0, 1)]);
    fleet.apply();
    let refused = waiters
        .iter_mut()
        .filter_map(|(_, waiter)| answer(waiter))
        .count();
    // The capacity of a fair queue is for each account.
    assert_eq!(refused, 0);
    let smaller = queue(Algorithm::Fifo, 1);
    fleet.set_model("m", smaller, &[endpoint(0, 1)]);
    fleet.apply();
    let answers: Vec<_> = waiters
        .iter_mut()
        .filter_map(|(_, waiter)| answer(waiter))
        .collect();
    assert_eq!(answers.len(), 2);
    for refused in answers {
        let reason = refused.expect_err("no permit is free").reason;
        assert_eq!(reason, FullReason::Cleared);
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_removed_refuses_its_waiters() {
    let mut fleet = TestFleet::with_model(queue(Algorithm::Fair, 3), &[1]);
    let group = fleet.group("m");
    let _running = leased(group.admit(ask("x")));
    let mut waiters = waiters(&group, &["a"]);
    fleet.remove_model("m");
    fleet.apply();
    let refused = answer(&mut waiters[0].1).expect("an answer");
    let reason = refused.expect_err("no endpoint is left").reason;
    assert_eq!(reason, FullReason::NoEndpoint);
}
