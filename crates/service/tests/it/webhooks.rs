//! What the desk does for receivers that do not answer. The clock is the test's; a connection to nobody
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

use crate::fake::{FakeModel, KEEP_FOR, Wishes, desk_with, submission};

const NOBODY: &str = "http://me:hunter2@127.0.0.1:1/hook?hunter2";
const HOUR: Duration = Duration::from_secs(60 * 60);

fn open() -> Config {
    Config {
        networks: AllowedNetworks::parse("127.0.0.1").expect("it is an address"),
        ..Config::default()
    }
}

/// Runs a job to its end that tells `NOBODY` how it ended.
async fn ended(net: Config) -> JobService {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with(
        model.clone(),
        Wishes {
            net,
            ..Wishes::default()
        },
    );
    let webhook = Webhook {
        url: Url::parse(NOBODY).expect("it is a URL"),
        filter: EventFilter::only([WebhookEvent::Completed]),
        headers: HeaderMap::new(),
        updates: UpdatePolicy::EveryValue,
        origin: None,
        streams: false,
        streams_files: false,
        renderer: WebhookRenderer::new(|_| Bytes::from_static(b"{}")),
    };
    jobs.submit(Submission {
        id: Some(JobId::parse("mine").expect("it is an id")),
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

async fn settled(jobs: &JobService) -> DeliveryRecord {
    loop {
        match message(jobs) {
            Some(record) if record.state == DeliveryState::Failed => return record,
            Some(_) | None => tokio::time::sleep(Duration::from_secs(1)).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_is_told_again_for_a_day_with_growing_pauses() {
    let jobs = ended(open()).await;
    let begun = Instant::now();
    let record = settled(&jobs).await;
    let took = begun.elapsed();
    assert!(took >= 24 * HOUR && took < 25 * HOUR, "{took:?}");
    // About 14 to reach an hour, then one per hour.
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
async fn while_it_is_told_again_the_next_time_is_known() {
    let jobs = ended(open()).await;
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
async fn an_address_that_is_not_called_is_not_tried_again() {
    let record = settled(&ended(Config::default()).await).await;
    assert_eq!(record.attempts.len(), 1);
    assert!(
        record
            .given_up
            .is_some_and(|why| why.contains("not public"))
    );
}

#[tokio::test(start_paused = true)]
async fn who_closes_tries_once_more_and_does_not_wait_for_a_day() {
    let jobs = ended(open()).await;
    // Long enough to be in the pauses of an hour.
    tokio::time::sleep(10 * HOUR).await;
    let before = message(&jobs).unwrap().attempts.len();
    let begun = Instant::now();
    jobs.close(Duration::from_secs(60)).await;
    assert!(
        begun.elapsed() < Duration::from_secs(90),
        "{:?}",
        begun.elapsed()
    );
    assert!(message(&jobs).unwrap().attempts.len() > before);
}

#[tokio::test(start_paused = true)]
async fn who_does_not_want_to_wait_has_it_sent_at_once() {
    let jobs = ended(open()).await;
    tokio::time::sleep(10 * HOUR).await;
    let before = message(&jobs).unwrap();
    let begun = Instant::now();
    jobs.replay_delivery(&before.id, None).await.unwrap();
    while message(&jobs).unwrap().attempts.len() == before.attempts.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(
        begun.elapsed() < Duration::from_secs(60),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_is_known_to_its_account_and_only_while_its_job_is() {
    let jobs = ended(Config::default()).await;
    // Longer than the desk remembers.
    let id = settled(&jobs).await.id;
    tokio::time::sleep(2 * KEEP_FOR).await;
    let other = Account::parse("other").expect("it is a name");
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
    let jobs = ended(open()).await;
    let record = settled(&jobs).await;
    let count = |result| jobs.metrics().attempts.of(result).get();
    assert_eq!(count(AttemptResult::NoAnswer), record.attempts.len() as u64);
    assert_eq!(
        (
            count(AttemptResult::Delivered),
            jobs.metrics().given_up.get()
        ),
        (0, 1)
    );
    let refused = ended(Config::default()).await;
    settled(&refused).await;
    assert_eq!(
        refused
            .metrics()
            .attempts
            .of(AttemptResult::NotAllowed)
            .get(),
        1
    );
}
