//! Replies that are lost, and an API that cannot be reached.

use std::time::Duration;

use tidegate_core::director_api::{LeaseToken, ReleaseCall, paths};
use tidegate_core::record::JobSpec;
use tidegate_core::{JobId, JobKind, Status};
use tidegate_director::{DirectorError, OnIsolated};

use crate::fake_api::Timing;
use crate::harness::{FirstUrl, Harness, Options, eventually, spec};

/// A lease that is over soon.
const SHORT: Timing = Timing {
    lease: Duration::from_millis(200),
    interval: Duration::from_millis(30),
};

#[tokio::test]
async fn a_lease_whose_reply_was_lost_is_asked_for_again_with_the_same_nonce() {
    let harness = Harness::start(Options::default()).await;
    harness.api.lose_replies(paths::LEASE, 2);
    let id = harness.add("a").await;
    harness.model.started().await.succeed("1");
    harness.wait_for_messages((0, 0)).await;
    let leases = harness.api.calls().leases;
    assert_eq!(leases.len(), 3);
    assert!(leases.iter().all(|lease| lease.nonce == leases[0].nonce));
    assert_eq!(harness.api.end(&id).unwrap().fence.attempt, 1);
}

#[tokio::test]
async fn an_end_whose_reply_was_lost_is_reported_again_as_the_same_end() {
    let harness = Harness::start(Options::default()).await;
    harness.api.lose_replies(paths::FINISH, 2);
    let id = harness.add("a").await;
    harness.model.started().await.succeed("1");
    harness.wait_for_messages((0, 0)).await;
    let finished = harness.api.calls().finished;
    assert_eq!(finished.len(), 3);
    assert!(finished.iter().all(|finish| *finish == finished[0]));
    assert_eq!(harness.api.status(&id), Some(Status::Succeeded));
}

#[tokio::test]
async fn the_version_of_a_training_is_reported_until_there_is_a_reply_and_before_the_end() {
    let harness = Harness::start(Options::default()).await;
    harness.api.lose_replies(paths::VERSIONS, 2);
    let training = JobSpec {
        kind: JobKind::Training,
        destination: Some("ann/mine".to_owned()),
        ..spec("a")
    };
    let id = harness.add_spec(training).await;
    harness
        .model
        .started()
        .await
        .succeed(r#"{"loss":1,"weights":"w"}"#);
    harness.wait_for_messages((0, 0)).await;
    let reported = harness.api.calls().versions;
    assert_eq!(reported.len(), 3);
    assert!(
        reported
            .iter()
            .all(|call| *call == reported[0] && call.weights == "w")
    );
    let output = harness.api.end(&id).unwrap().completion.output.unwrap();
    assert_eq!(
        output,
        r#"{"loss":1,"version":"ann/mine:1","weights":"w"}"#.as_bytes()
    );
    let prediction = harness.add("b").await;
    let run = harness.model.started().await;
    run.succeed(r#"{"weights":"w"}"#);
    eventually(|| harness.api.status(&prediction).is_some()).await;
    assert_eq!(harness.api.calls().versions.len(), 3);
}

#[tokio::test]
async fn a_message_is_not_acknowledged_before_the_api_has_the_end() {
    let harness = Harness::start(Options::default()).await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.set_down(true);
    run.succeed("1");
    run.dropped().await;
    // The slot is free, and the message is still held.
    assert_eq!(harness.messages().await, (0, 1));
    assert_eq!(harness.api.status(&id), None);
    harness.api.set_down(false);
    harness.wait_for_messages((0, 0)).await;
    assert_eq!(harness.api.status(&id), Some(Status::Succeeded));
}

#[tokio::test]
async fn a_director_waits_for_the_api() {
    let harness = Harness::start_unconnected(Options::default()).await;
    harness.api.set_down(true);
    harness.add("a").await;
    eventually(|| harness.api.failures() > 1).await;
    harness.api.set_down(false);
    harness.model.started().await.succeed("1");
    harness.wait_for_messages((0, 0)).await;
}

#[tokio::test]
async fn a_director_uses_another_api_process_when_one_does_not_reply() {
    let harness = Harness::start(Options {
        first_url: FirstUrl::IsDead,
        ..Options::default()
    })
    .await;
    harness.add("a").await;
    harness.model.started().await.succeed("1");
    harness.wait_for_messages((0, 0)).await;
}

#[tokio::test]
async fn an_isolated_director_stops_its_predictions_and_releases_them() {
    let harness = Harness::start(Options {
        timing: SHORT,
        ..Options::default()
    })
    .await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.set_down(true);
    run.dropped().await;
    assert_eq!(harness.api.status(&id), None);
    harness.api.set_down(false);
    eventually(|| harness.api.calls().released.len() == 1).await;
    assert_eq!(harness.messages().await, (0, 1), "not acknowledged");
    let calls = harness.api.calls();
    assert!(calls.finished.is_empty());
    assert_eq!(calls.released[0].lease.job.id, id);
}

/// A request for a lease may arrive after the director has given up the job.
#[tokio::test]
async fn a_lease_that_was_granted_late_is_released() {
    let harness = Harness::start(Options {
        timing: SHORT,
        ..Options::default()
    })
    .await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    let known = harness.api.lease_of(&id);
    // The same job with another attempt, and another job.
    let mut late = [known.clone(), known.clone()];
    late[0].fence.attempt += 1;
    late[1].job.id = JobId::parse("b").unwrap();
    harness
        .api
        .report_unlisted(&[known, late[0].clone(), late[1].clone()]);
    eventually(|| harness.api.calls().released.len() >= 4).await;
    harness.api.report_unlisted(&[]);
    run.succeed("1");
    harness.wait_for_messages((0, 0)).await;
    assert_eq!(harness.api.status(&id), Some(Status::Succeeded));
    let released = harness.api.calls().released;
    assert!(late.iter().all(|lease| {
        let token = LeaseToken(format!("late-{}", lease.job.id));
        let call = ReleaseCall {
            lease: lease.clone(),
            token,
        };
        released.contains(&call)
    }));
    assert!(released.iter().all(|call| late.contains(&call.lease)));
}

#[tokio::test]
async fn a_lease_whose_reply_was_lost_is_not_released() {
    let harness = Harness::start(Options {
        timing: SHORT,
        ..Options::default()
    })
    .await;
    harness.api.lose_replies(paths::LEASE, usize::MAX);
    let id = harness.add("a").await;
    eventually(|| !harness.api.calls().leases.is_empty()).await;
    harness.api.report_unlisted(&[harness.api.lease_of(&id)]);
    let before = harness.api.calls().heartbeats.len();
    eventually(|| harness.api.calls().heartbeats.len() > before + 3).await;
    harness.api.lose_replies(paths::LEASE, 0);
    harness.model.started().await.succeed("1");
    harness.api.report_unlisted(&[]);
    harness.wait_for_messages((0, 0)).await;
    assert!(harness.api.calls().released.is_empty());
}

/// As often as heartbeats are sent, the lease would have expired many times.
#[tokio::test]
async fn a_director_continues_its_predictions_while_the_store_of_the_api_is_down() {
    let harness = Harness::start(Options {
        timing: SHORT,
        // A process that does not reply changes nothing.
        first_url: FirstUrl::IsDead,
        ..Options::default()
    })
    .await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.set_store_down(true);
    let began = tokio::time::Instant::now();
    eventually(|| harness.api.failures() > 3 && began.elapsed() > 3 * SHORT.lease).await;
    assert!(!harness.director.is_isolated());
    run.succeed("1");
    harness.api.set_store_down(false);
    harness.wait_for_messages((0, 0)).await;
    assert_eq!(harness.api.status(&id), Some(Status::Succeeded));
    assert!(harness.api.calls().released.is_empty());
}

#[tokio::test]
async fn an_isolated_director_continues_trainings() {
    let harness = Harness::start(Options {
        timing: SHORT,
        slots: 2,
        ..Options::default()
    })
    .await;
    let prediction = harness.add("prediction").await;
    let stopped = harness.model.started().await;
    let training = tidegate_core::record::JobSpec {
        kind: JobKind::Training,
        ..spec("training")
    };
    let training = harness.add_spec(training).await;
    let run = harness.model.started().await;
    harness.api.set_down(true);
    stopped.dropped().await;
    run.succeed("1");
    harness.api.set_down(false);
    eventually(|| harness.api.status(&training) == Some(Status::Succeeded)).await;
    assert_eq!(harness.api.status(&prediction), None);
}

#[tokio::test]
async fn an_isolated_director_can_be_told_to_continue() {
    let harness = Harness::start(Options {
        timing: SHORT,
        on_isolated: OnIsolated::Continue,
        slots: 1,
        ..Options::default()
    })
    .await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.set_down(true);
    eventually(|| harness.director.is_isolated()).await;
    run.succeed("1");
    harness.api.set_down(false);
    harness.wait_for_messages((0, 0)).await;
    assert_eq!(harness.api.status(&id), Some(Status::Succeeded));
}

#[tokio::test]
async fn a_director_whose_name_another_process_uses_ends() {
    let harness = Harness::start(Options::default()).await;
    harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.supersede();
    run.dropped().await;
    let finished = harness.api.calls().finished.len();
    let error = harness.ended().await.unwrap_err();
    assert!(matches!(error, DirectorError::Superseded { .. }), "{error}");
    assert!(error.to_string().contains("--name"), "{error}");
    assert_eq!(finished, 0);
}
