//! The contract of live events on both backends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::leases::JobRef;
use tidegate_core::live::{Live, LiveBatch, LiveEvent, LivePosition, WakeReason};
use tidegate_core::{Account, JobId, LogSource};
use tidegate_queue::MemoryLive;
use tidegate_queue::redis::{RedisLive, RedisUrls};

use crate::redis_server::RedisServer;

fn job(id: &str) -> JobRef {
    JobRef {
        account: Account::parse("ann").expect("an account"),
        id: JobId::parse(id).expect("an id"),
    }
}

fn batch(attempt: u32, offset: u64, texts: &[&str]) -> LiveBatch {
    let log = |text: &&str| LiveEvent::Log {
        source: LogSource::Stdout,
        text: (*text).to_owned(),
    };
    LiveBatch {
        attempt,
        offset,
        events: texts.iter().map(log).collect(),
    }
}

async fn publish(live: &dyn Live, job: &JobRef, batch: LiveBatch) -> u64 {
    live.publish(job, batch).await.expect("it is published")
}

/// The attempt, the offset and the texts of the events after a position.
async fn read(
    live: &dyn Live,
    job: &JobRef,
    position: (u32, u64),
) -> Option<(u32, u64, Vec<String>)> {
    let (attempt, offset) = position;
    let batch = live
        .read(job, LivePosition { attempt, offset })
        .await
        .expect("events are read")?;
    let text = |event| match event {
        LiveEvent::Log { text, .. } => text,
        other => panic!("{other:?}"),
    };
    let texts = batch.events.into_iter().map(text).collect();
    Some((batch.attempt, batch.offset, texts))
}

fn found(attempt: u32, offset: u64, texts: &[&str]) -> Option<(u32, u64, Vec<String>)> {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    Some((attempt, offset, texts))
}

async fn events_are_read_in_order_and_once(live: Arc<dyn Live>) {
    let (live, job) = (&*live, job("{braces}"));
    assert_eq!(read(live, &job, (0, 0)).await, None);
    assert_eq!(publish(live, &job, batch(1, 0, &["a", "b"])).await, 2);
    assert_eq!(publish(live, &job, batch(1, 1, &["b", "c"])).await, 3);
    let next = publish(live, &job, batch(1, 9, &["z"])).await;
    assert_eq!(next, 3, "events before it are missing");
    assert_eq!(
        read(live, &job, (0, 0)).await,
        found(1, 0, &["a", "b", "c"])
    );
    assert_eq!(read(live, &job, (1, 2)).await, found(1, 2, &["c"]));
    assert_eq!(read(live, &job, (1, 3)).await, None);
}

async fn a_later_attempt_replaces_the_events(live: Arc<dyn Live>) {
    let (live, job) = (&*live, job("again"));
    publish(live, &job, batch(1, 0, &["old", "older"])).await;
    publish(live, &job, batch(2, 0, &["new"])).await;
    publish(live, &job, batch(1, 2, &["late"])).await;
    assert_eq!(read(live, &job, (1, 2)).await, found(2, 0, &["new"]));
}

async fn values_are_copied_as_they_are(live: Arc<dyn Live>) {
    let job = job("value");
    let event = LiveEvent::Output {
        json: Bytes::from_static(b"{\"a\" : 1.0}"),
        returned: true,
    };
    let sent = LiveBatch {
        attempt: 1,
        offset: 0,
        events: vec![event.clone()],
    };
    publish(&*live, &job, sent).await;
    let batch = live.read(&job, LivePosition::default()).await;
    let batch = batch.expect("events are read").expect("there is one");
    assert_eq!(batch.events, [event]);
}

async fn subscribers_are_woken(live: Arc<dyn Live>) {
    let (followed, other) = (job("followed"), job("other"));
    live.subscribe(&followed).await.expect("it is subscribed");
    // Wake-ups may be lost until the subscription is made.
    let woken = async {
        loop {
            for job in [&other, &followed] {
                let woken = live.wake(job, WakeReason::Ended).await;
                woken.expect("it is woken");
            }
            let wake = tokio::time::timeout(Duration::from_millis(50), live.next_wake()).await;
            if let Ok(wake) = wake {
                return wake;
            }
        }
    };
    assert_eq!(woken.await, (followed.clone(), WakeReason::Ended));
    publish(&*live, &followed, batch(1, 0, &["a"])).await;
    while live.next_wake().await != (followed.clone(), WakeReason::Events) {}
}

async fn a_director_is_told_to_stop_a_job(live: Arc<dyn Live>) {
    let stop = live.stop_requested("here");
    tokio::pin!(stop);
    loop {
        let asked = live.request_stop("here", &job("a")).await;
        asked.expect("it is sent");
        if let Ok(found) = tokio::time::timeout(Duration::from_millis(50), &mut stop).await {
            return assert_eq!(found, job("a"));
        }
    }
}

macro_rules! backends {
    ($($case:ident,)*) => {
        mod memory {
            $(#[tokio::test]
            async fn $case() {
                super::$case(std::sync::Arc::new(super::MemoryLive::default())).await;
            })*
        }
        mod redis {
            $(#[tokio::test]
            async fn $case() {
                let server = super::RedisServer::start();
                let urls: super::RedisUrls = server.url().parse().expect("an address");
                let live = super::RedisLive::new(&urls.all()[0]).expect("a valid address");
                super::$case(std::sync::Arc::new(live)).await;
            })*
        }
    };
}

backends!(
    events_are_read_in_order_and_once,
    a_later_attempt_replaces_the_events,
    values_are_copied_as_they_are,
    subscribers_are_woken,
    a_director_is_told_to_stop_a_job,
);
