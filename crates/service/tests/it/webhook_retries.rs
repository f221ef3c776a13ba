//! Webhooks to receivers that do not respond. The clock is paused; a connection to a closed port
//! fails at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::policy::UpdatePolicy;
use tidegate_core::{Account, Event, JobId, Outcome};
use tidegate_net::header::HeaderMap;
use tidegate_net::{AllowedNetworks, Config, Url};
use tidegate_service::{
    AttemptResult, DeliveryRecord, DeliveryState, EventFilter, JobService, ReplayError, Submission,
    Webhook, WebhookEvent, WebhookRenderer,
};
use tokio::time::Instant;

use crate::fake_model::{FakeModel, KEEP_FOR, ServiceOptions, service_with, submission};

const CLOSED_PORT: &str = "http://me:hunter2@127.0.0.1:1/hook?hunter2";
const HOUR: Duration = Duration::from_secs(60 * 60);

fn loopback_allowed() -> Config {
    Config {
        networks: AllowedNetworks::parse("127.0.0.1").expect("a valid address"),
        ..Config::default()
    }
}

/// Runs a job to its end whose webhook goes to `CLOSED_PORT`.
async fn job_ended(net: Config) -> JobService {
    let model = FakeModel::without_streaming(1);
    let jobs = service_with(
        model.clone(),
        ServiceOptions {
            net,
            ..ServiceOptions::default()
        },
    );
    let webhook = Webhook {
        url: Url::parse(CLOSED_PORT).expect("a valid URL"),
        filter: EventFilter::only([WebhookEvent::Completed]),
        headers: HeaderMap::new(),
        updates: UpdatePolicy::EveryValue,
        origin: None,
        streams: false,
        streams_files: false,
        renderer: WebhookRenderer::new(|_| Bytes::from_static(b"{}")),
    };
    jobs.submit(Submission {
        id: Some(JobId::parse("mine").expect("a valid id")),
        webhook: Some(Arc::new(webhook)),
        ..submission("{}")
    })
    .await
    .ok();
    model.started().await.send(Event::Ended(Outcome::Canceled));
    jobs
}

fn message(jobs: &JobService) -> Option<DeliveryRecord> {
    jobs.deliveries()
        .list(|record| record.job.as_str() == "mine")
        .pop()
}

async fn failed_delivery(jobs: &JobService) -> DeliveryRecord {
    loop {
        match message(jobs) {
            Some(record) if record.state == DeliveryState::Failed => return record,
            Some(_) | None => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_webhook_is_retried_for_a_day_with_growing_pauses() {
    let jobs = job_ended(loopback_allowed()).await;
    let started = Instant::now();
    let record = failed_delivery(&jobs).await;
    let elapsed = started.elapsed();
    assert!(elapsed >= 24 * HOUR && elapsed < 25 * HOUR, "{elapsed:?}");
    // About 14 attempts until the pause is an hour, then one per hour.
    assert!(
        (30..=50).contains(&record.attempts.len()),
        "{}",
        record.attempts.len()
    );
    assert!(
        record
            .given_up
            .is_some_and(|why| why.contains("--webhook-retry-for"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_retrying_webhook_shows_its_next_attempt() {
    let jobs = job_ended(loopback_allowed()).await;
    loop {
        match message(&jobs) {
            Some(record) if record.state == DeliveryState::Retrying => {
                assert!(
                    record.id.starts_with("msg_") && record.id.len() == 30,
                    "{}",
                    record.id
                );
                assert_eq!(
                    (record.host.as_str(), record.event),
                    ("127.0.0.1:1", WebhookEvent::Completed)
                );
                assert!(
                    record.attempts[0]
                        .result
                        .as_ref()
                        .is_err_and(|error| !error.contains("hunter2"))
                );
                if record.next_attempt_at.is_some() {
                    return;
                }
            }
            Some(_) | None => {}
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_webhook_to_a_forbidden_address_is_not_retried() {
    let record = failed_delivery(&job_ended(Config::default()).await).await;
    assert_eq!(record.attempts.len(), 1);
    assert!(
        record
            .given_up
            .is_some_and(|why| why.contains("not public"))
    );
}

#[tokio::test(start_paused = true)]
async fn close_sends_pending_webhooks_once_more_and_does_not_wait_for_retries() {
    let jobs = job_ended(loopback_allowed()).await;
    // Long enough that the pauses are an hour.
    tokio::time::sleep(10 * HOUR).await;
    let before = message(&jobs).unwrap().attempts.len();
    let started = Instant::now();
    jobs.close(Duration::from_secs(60)).await;
    assert!(
        started.elapsed() < Duration::from_secs(90),
        "{:?}",
        started.elapsed()
    );
    assert!(message(&jobs).unwrap().attempts.len() > before);
}

#[tokio::test(start_paused = true)]
async fn a_replayed_webhook_is_sent_at_once() {
    let jobs = job_ended(loopback_allowed()).await;
    tokio::time::sleep(10 * HOUR).await;
    let before = message(&jobs).unwrap();
    let started = Instant::now();
    jobs.replay_delivery(&before.id, None).await.unwrap();
    while message(&jobs).unwrap().attempts.len() == before.attempts.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        started.elapsed() < Duration::from_secs(60),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_can_be_replayed_by_its_account_while_its_job_exists() {
    let jobs = job_ended(Config::default()).await;
    let id = failed_delivery(&jobs).await.id;
    // Longer than ended jobs are kept.
    tokio::time::sleep(2 * KEEP_FOR).await;
    let other = Account::parse("other").expect("a valid account");
    assert!(matches!(
        jobs.replay_delivery(&id, Some(&other)).await,
        Err(ReplayError::Unknown(_))
    ));
    assert!(matches!(
        jobs.replay_delivery("msg_0", None).await,
        Err(ReplayError::Unknown(_))
    ));
    assert!(matches!(
        jobs.replay_delivery(&id, None).await,
        Err(ReplayError::Gone)
    ));
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_counted() {
    let jobs = job_ended(loopback_allowed()).await;
    let record = failed_delivery(&jobs).await;
    let count = |result| jobs.metrics().attempts.of(result).get();
    assert_eq!(count(AttemptResult::NoAnswer), record.attempts.len() as u64);
    assert_eq!(
        (
            count(AttemptResult::Delivered),
            jobs.metrics().given_up.get()
        ),
        (0, 1)
    );
    let refused = job_ended(Config::default()).await;
    failed_delivery(&refused).await;
    assert_eq!(
        refused
            .metrics()
            .attempts
            .of(AttemptResult::NotAllowed)
            .get(),
        1
    );
}
