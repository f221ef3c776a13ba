//! A director that stops.

use std::time::Duration;

use tidegate_core::Status;

use crate::harness::{Harness, Options, eventually};

#[tokio::test]
async fn a_director_that_stops_finishes_its_jobs_and_takes_no_more() {
    let harness = Harness::start(Options::default()).await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.stop();
    let waiting = harness.add("b").await;
    eventually(|| harness.api.calls().heartbeats.last().unwrap().is_draining).await;
    run.succeed("1");
    harness.wait_for_messages((1, 0)).await;
    let api = std::sync::Arc::clone(&harness.api);
    assert!(harness.ended().await.unwrap(), "all jobs ended");
    assert_eq!(api.status(&id), Some(Status::Succeeded));
    assert_eq!(api.status(&waiting), None);
    let last = api.calls().heartbeats.pop().unwrap();
    assert!(last.is_draining && last.leases.is_empty());
}

#[tokio::test]
async fn a_job_that_does_not_end_in_time_is_given_to_another_director() {
    let harness = Harness::start(Options {
        drain_timeout: Duration::from_millis(50),
        ..Options::default()
    })
    .await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.stop();
    run.dropped().await;
    harness.wait_for_messages((1, 0)).await;
    let api = std::sync::Arc::clone(&harness.api);
    assert!(!harness.ended().await.unwrap());
    let calls = api.calls();
    assert!(calls.finished.is_empty());
    assert_eq!(calls.released[0].lease.job.id, id);
}
