//! Jobs from the queue to their end.

use tidegate_core::{JobId, Status};
use tidegate_director::LoadTiming;

use crate::fake_model::within;
use crate::harness::{Harness, Options, eventually};

#[tokio::test]
async fn a_job_is_leased_run_reported_and_acknowledged() {
    let harness = Harness::start(Options::default()).await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    assert_eq!(run.work.id, id);
    assert_eq!(
        harness.messages().await,
        (0, 1),
        "not acknowledged before its end"
    );
    run.succeed("7");
    harness.wait_for_messages((0, 0)).await;
    let end = harness.api.end(&id).unwrap();
    assert_eq!(end.status, Status::Succeeded);
    assert_eq!(end.completion.output.as_deref(), Some(&b"7"[..]));
    assert!(end.completion.metrics.contains_key("predict_time"));
}

#[tokio::test]
async fn a_director_takes_no_more_messages_than_it_has_free_slots() {
    let harness = Harness::start(Options {
        slots: 2,
        ..Options::default()
    })
    .await;
    for id in ["a", "b", "c", "d"] {
        harness.add(id).await;
    }
    let (first, _second) = (harness.model.started().await, harness.model.started().await);
    assert_eq!(harness.messages().await, (2, 2));
    first.succeed("1");
    let third = harness.model.started().await;
    harness.wait_for_messages((1, 2)).await;
    assert_eq!(third.work.id.as_str(), "c");
}

#[tokio::test]
async fn a_cancel_arrives_with_the_reply_to_a_heartbeat() {
    let harness = Harness::start(Options::default()).await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.cancel(&id);
    run.cancel_requested().await;
    run.succeed("1");
    harness.wait_for_messages((0, 0)).await;
    assert_eq!(harness.api.status(&id), Some(Status::Canceled));
}

/// The cancel was recorded after the last heartbeat.
#[tokio::test]
async fn a_recorded_cancel_decides_the_end() {
    let timing = crate::fake_api::Timing {
        lease: crate::harness::LONG,
        interval: crate::harness::LONG,
    };
    let harness = Harness::start(Options {
        timing,
        ..Options::default()
    })
    .await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.cancel(&id);
    run.succeed("1");
    harness.wait_for_messages((0, 0)).await;
    assert_eq!(harness.api.status(&id), Some(Status::Canceled));
}

#[tokio::test]
async fn messages_of_ended_jobs_are_acknowledged_and_do_not_run() {
    let harness = Harness::start(Options::default()).await;
    harness.push(&JobId::parse("gone").unwrap()).await;
    eventually(|| harness.api.calls().leases.len() == 1).await;
    harness.wait_for_messages((0, 0)).await;
    assert!(!harness.model.has_started());
}

#[tokio::test]
async fn a_job_of_another_director_does_not_run_and_its_message_stays() {
    let harness = Harness::start(Options::default()).await;
    harness.api.add(crate::harness::spec("a"));
    let id = JobId::parse("a").unwrap();
    harness.api.hold_elsewhere(&id);
    harness.push(&id).await;
    harness.add("b").await;
    let run = harness.model.started().await;
    assert_eq!(run.work.id.as_str(), "b");
    assert_eq!(harness.messages().await, (0, 2));
}

#[tokio::test]
async fn a_lost_lease_stops_the_job_and_its_result_does_not_count() {
    let harness = Harness::start(Options::default()).await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.lose_lease(&id);
    run.dropped().await;
    let next = harness.add("b").await;
    harness.model.started().await.succeed("1");
    eventually(|| harness.api.status(&next).is_some()).await;
    let calls = harness.api.calls();
    assert!(calls.finished.iter().all(|finish| finish.id != id));
    assert!(calls.released.is_empty(), "there is no lease to give back");
    within(async { harness.wait_for_messages((0, 1)).await }).await;
}

#[tokio::test]
async fn a_model_that_is_not_loaded_gets_one_message_until_it_is() {
    let harness = Harness::start(Options {
        slots: 2,
        loading: LoadTiming::OnDemand,
        ..Options::default()
    })
    .await;
    for id in ["a", "b", "c"] {
        harness.add(id).await;
    }
    eventually(|| harness.api.calls().leases.len() == 1).await;
    assert_eq!(harness.messages().await, (2, 1));
    assert!(!harness.model.has_started());
    harness.model.load();
    let (_first, _second) = (harness.model.started().await, harness.model.started().await);
    harness.wait_for_messages((1, 2)).await;
}

#[tokio::test]
async fn a_job_that_waits_for_its_model_can_be_canceled() {
    let harness = Harness::start(Options {
        loading: LoadTiming::OnDemand,
        ..Options::default()
    })
    .await;
    let id = harness.add("a").await;
    eventually(|| harness.api.calls().leases.len() == 1).await;
    harness.api.cancel(&id);
    harness.wait_for_messages((0, 0)).await;
    assert_eq!(harness.api.status(&id), Some(Status::Canceled));
}
