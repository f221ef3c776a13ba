//! Events that clients see before the end of a job.

use tidegate_core::live::LiveEvent;
use tidegate_core::{Event, LogSource};

use crate::fake_model::value;
use crate::harness::{Harness, Options, eventually};

fn log(text: &str) -> Event {
    Event::Log {
        source: LogSource::Stdout,
        text: text.to_owned(),
    }
}

#[tokio::test]
async fn events_are_published_in_order_with_their_offsets() {
    let harness = Harness::start(Options::default()).await;
    harness.add("a").await;
    let run = harness.model.started().await;
    let count = || {
        let published = harness.api.calls().published;
        published
            .iter()
            .map(|call| call.batch.events.len())
            .sum::<usize>()
    };
    run.send(log("one\n"));
    eventually(|| count() == 2).await;
    run.send(Event::Output(value("\"x\"")));
    eventually(|| count() == 3).await;
    run.succeed("1");
    harness.wait_for_messages((0, 0)).await;
    let published = harness.api.calls().published;
    let mut next = 0;
    for call in &published {
        assert_eq!((call.batch.attempt, call.batch.offset), (1, next));
        assert_eq!(call.token.0, "lease-a");
        next += call.batch.events.len() as u64;
    }
    let events: Vec<&LiveEvent> = published
        .iter()
        .flat_map(|call| &call.batch.events)
        .collect();
    assert!(matches!(events[0], LiveEvent::Started { .. }));
    assert!(matches!(events[1], LiveEvent::Log { text, .. } if text == "one\n"));
    assert!(matches!(events[2], LiveEvent::Output { json, returned: false } if json == "\"x\""));
}

#[tokio::test]
async fn events_that_the_api_has_lost_are_published_again() {
    let harness = Harness::start(Options::default()).await;
    harness.add("a").await;
    let run = harness.model.started().await;
    run.send(log("one\n"));
    eventually(|| !harness.api.calls().published.is_empty()).await;
    harness.api.rewind_events_to(0);
    run.send(log("two\n"));
    eventually(|| {
        let published = harness.api.calls().published;
        let again = published.iter().skip(1).find(|call| call.batch.offset == 0);
        again.is_some_and(|call| call.batch.events.len() == 3)
    })
    .await;
}

#[tokio::test]
async fn a_job_does_not_wait_for_its_events() {
    let harness = Harness::start(Options::default()).await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    harness.api.set_down(true);
    run.send(log("one\n"));
    run.succeed("1");
    run.dropped().await;
    harness.api.set_down(false);
    eventually(|| harness.api.end(&id).is_some()).await;
    assert_eq!(harness.api.end(&id).unwrap().completion.logs, "one\n");
}
