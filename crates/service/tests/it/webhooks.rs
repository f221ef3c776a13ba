//! What the desk does for receivers that do not answer. The clock is the test's; a connection to nobody
//! fails at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::{Event, JobId, Outcome};
use tidegate_net::header::HeaderMap;
use tidegate_net::{Config, Networks, Url};
use tidegate_service::{DeliveryRecord, DeliveryState, EventFilter, Jobs, Submission, Webhook, WebhookEvent, Wording};
use tokio::time::Instant;

use crate::fake::{FakeModel, Wishes, desk_with, submission};

const NOBODY: &str = "http://me:hunter2@127.0.0.1:1/hook?hunter2";
const HOUR: Duration = Duration::from_secs(60 * 60);

fn open() -> Config {
    Config { networks: Networks::parse("127.0.0.1").expect("it is an address"), ..Config::default() }
}

/// Runs a job to its end that tells `NOBODY` how it ended.
async fn ended(net: Config) -> Jobs {
    let model = FakeModel::without_streaming(1);
    let jobs = desk_with(model.clone(), Wishes { net, ..Wishes::default() });
    let webhook = Webhook {
        url: Url::parse(NOBODY).expect("it is a URL"),
        filter: EventFilter::only([WebhookEvent::Completed]),
        headers: HeaderMap::new(),
        origin: None,
        wording: Wording::new(|_| Bytes::from_static(b"{}")),
    };
    jobs.submit(Submission { id: Some(JobId::parse("mine").expect("it is an id")), webhook: Some(Arc::new(webhook)), ..submission("{}") })
        .await
        .ok();
    model.started().await.send(Event::Ended(Outcome::Canceled));
    jobs
}

fn message(jobs: &Jobs) -> Option<DeliveryRecord> {
    jobs.deliveries().list(|record| record.job.as_str() == "mine").pop()
}

async fn settled(jobs: &Jobs) -> DeliveryRecord {
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
    assert!((30..=50).contains(&record.attempts.len()), "{}", record.attempts.len());
    assert!(record.given_up.is_some_and(|why| why.contains("--webhook-retry-for")));
}

#[tokio::test(start_paused = true)]
async fn while_it_is_told_again_the_next_time_is_known() {
    let jobs = ended(open()).await;
    loop {
        match message(&jobs) {
            Some(record) if record.state == DeliveryState::Retrying => {
                assert!(record.id.starts_with("msg_") && record.id.len() == 30, "{}", record.id);
                assert_eq!((record.host.as_str(), record.event), ("127.0.0.1:1", WebhookEvent::Completed));
                assert!(record.attempts[0].result.as_ref().is_err_and(|error| !error.contains("hunter2")));
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
    assert!(record.given_up.is_some_and(|why| why.contains("not public")));
}

#[tokio::test(start_paused = true)]
async fn who_closes_tries_once_more_and_does_not_wait_for_a_day() {
    let jobs = ended(open()).await;
    // Long enough to be in the pauses of an hour.
    tokio::time::sleep(10 * HOUR).await;
    let before = message(&jobs).unwrap().attempts.len();
    let begun = Instant::now();
    jobs.close(Duration::from_secs(60)).await;
    assert!(begun.elapsed() < Duration::from_secs(90), "{:?}", begun.elapsed());
    assert!(message(&jobs).unwrap().attempts.len() > before);
}
