//! Publishes the events of a running job to the API, so that clients see its output before it has ended.
//!
//! One call is in flight; what happens meanwhile goes with the next. The job never waits for it: a job that
//! has ended is published with its end, and events that were not published by then are not sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tidegate_core::chain;
use tidegate_core::clock;
use tidegate_core::director_api::{LeaseToken, PublishCall, PublishReply};
use tidegate_core::director_metrics::DirectorMetrics;
use tidegate_core::leases::JobRef;
use tidegate_core::live::{LiveBatch, LiveEvent};
use tidegate_service::{Job, JobService, StreamBatch, StreamEvent, StreamReader};
use tokio_util::sync::CancellationToken;

use crate::api_calls::ApiCalls;

/// How long the first events wait. Most small jobs have ended by then, and need no call.
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// The most events of one call.
const MAX_BATCH_EVENTS: usize = 1000;
/// The most bytes of one call; one event may be larger.
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// How many published events are kept, for an API that has lost them.
const KEPT_EVENTS: usize = 1024;

/// Publishes the events of one job.
pub(crate) struct EventPublisher {
    pub(crate) api: Arc<dyn ApiCalls>,
    pub(crate) job_ref: JobRef,
    pub(crate) token: LeaseToken,
    pub(crate) attempt: u32,
    pub(crate) job: Arc<Job>,
    /// The service that runs the job.
    pub(crate) service: JobService,
    pub(crate) metrics: Arc<DirectorMetrics>,
}

/// The events of a job that are not dropped yet.
#[derive(Default)]
struct EventBuffer {
    events: VecDeque<StreamEvent>,
    /// The number of events before the first one here.
    dropped: u64,
    /// The number of events that the API has.
    published: u64,
    has_started: bool,
}

impl EventPublisher {
    /// Publishes until the job has ended or `stopped` is cancelled.
    pub(crate) async fn run(self, stopped: CancellationToken) {
        let Ok(reader) = self.job.follow() else {
            return;
        };
        tokio::select! {
            biased;
            () = self.job.ended() => {}
            () = stopped.cancelled() => {}
            () = self.publish_all(reader) => {}
        }
    }

    async fn publish_all(&self, mut reader: StreamReader) {
        let mut buffer = EventBuffer::default();
        let mut is_first = true;
        while let Some(StreamBatch::Events(events)) = reader.next().await {
            buffer.add(events);
            if std::mem::take(&mut is_first) {
                tokio::time::sleep(FIRST_DELAY).await;
                if let Some(Some(StreamBatch::Events(events))) = reader.next().now_or_never() {
                    buffer.add(events);
                }
            }
            while let Some(batch) = buffer.batch(&self.job, self.attempt) {
                let Some(reply) = self.publish(batch).await else {
                    return;
                };
                if reply.cancel_requested {
                    let JobRef { account, id } = &self.job_ref;
                    self.service.request_stop(account, id);
                }
                if !buffer.acknowledge(reply.next_offset) {
                    tracing::debug!(job = %self.job_ref.id, "stopped publishing: the API needs events that are gone");
                    return;
                }
            }
        }
    }

    /// Publishes a batch, as often as needed; `None` when the API refuses it.
    async fn publish(&self, batch: LiveBatch) -> Option<PublishReply> {
        let call = PublishCall {
            job: self.job_ref.clone(),
            token: self.token.clone(),
            batch,
        };
        loop {
            match self.api.publish(&call).await {
                Ok(reply) => {
                    self.metrics.events.add(call.batch.events.len() as u64);
                    return Some(reply);
                }
                Err(error) if error.is_permanent() => {
                    tracing::warn!(job = %self.job_ref.id, error = %chain(&error), "stopped publishing events of job");
                    return None;
                }
                Err(_) => tokio::time::sleep(self.api.pause()).await,
            }
        }
    }
}

impl EventBuffer {
    /// Adds events. Those before the start are warnings about the input: the API has them with the job.
    fn add(&mut self, events: Vec<StreamEvent>) {
        for event in events {
            self.has_started |= matches!(event, StreamEvent::Start);
            if self.has_started && !matches!(event, StreamEvent::Completed) {
                self.events.push_back(event);
            }
        }
    }

    /// The next events that the API does not have; `None` when it has all.
    fn batch(&self, job: &Job, attempt: u32) -> Option<LiveBatch> {
        let first = usize::try_from(self.published - self.dropped).ok()?;
        let (mut bytes, mut events) = (0, Vec::new());
        for event in self.events.iter().skip(first).take(MAX_BATCH_EVENTS) {
            bytes += size(event);
            if bytes > MAX_BATCH_BYTES && !events.is_empty() {
                break;
            }
            events.extend(live_event(event, job));
        }
        (!events.is_empty()).then_some(LiveBatch {
            attempt,
            offset: self.published,
            events,
        })
    }

    /// Continues at the offset that the API expects. Returns `false` if the events from there on are gone.
    fn acknowledge(&mut self, next_offset: u64) -> bool {
        let end = self.dropped + self.events.len() as u64;
        if next_offset < self.dropped {
            return false;
        }
        self.published = next_offset.min(end);
        while self.published - self.dropped > KEPT_EVENTS as u64 {
            self.events.pop_front();
            self.dropped += 1;
        }
        true
    }
}

fn live_event(event: &StreamEvent, job: &Job) -> Option<LiveEvent> {
    Some(match event {
        StreamEvent::Start => LiveEvent::Started {
            at: job
                .snapshot_without_output()
                .started_at
                .unwrap_or_else(clock::now),
        },
        StreamEvent::Output { chunk, .. } => LiveEvent::Output {
            json: chunk.clone(),
            returned: job.is_output_returned(),
        },
        StreamEvent::Log { source, text } => LiveEvent::Log {
            source: *source,
            text: text.to_string(),
        },
        StreamEvent::Metric(metric) => LiveEvent::Metric((**metric).clone()),
        StreamEvent::Completed => return None,
    })
}

/// The approximate size of an event in a call.
fn size(event: &StreamEvent) -> usize {
    match event {
        StreamEvent::Output { chunk, .. } => chunk.len(),
        StreamEvent::Log { text, .. } => text.len(),
        StreamEvent::Start | StreamEvent::Metric(_) | StreamEvent::Completed => 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(count: usize) -> EventBuffer {
        let mut buffer = EventBuffer::default();
        let log = |_| StreamEvent::Log {
            source: tidegate_core::LogSource::Stdout,
            text: "x".into(),
        };
        buffer.add(vec![log(0), StreamEvent::Start]);
        buffer.add((1..count).map(log).collect());
        buffer
    }

    #[test]
    fn warnings_before_the_start_are_not_events_of_the_run() {
        assert_eq!(buffer(3).events.len(), 3);
    }

    #[test]
    fn events_are_sent_again_from_the_offset_that_the_api_expects() {
        let mut events = buffer(2000);
        assert!(events.acknowledge(1000));
        assert_eq!((events.published, events.dropped), (1000, 0));
        assert!(events.acknowledge(0), "the API has lost all");
        assert_eq!(events.published, 0);
        assert!(events.acknowledge(2000));
        assert_eq!(events.dropped, 2000 - KEPT_EVENTS as u64);
        assert!(!events.acknowledge(5), "these events are gone");
    }

    #[test]
    fn an_api_that_claims_more_than_was_sent_is_not_believed() {
        let mut events = buffer(10);
        assert!(events.acknowledge(500));
        assert_eq!(events.published, 10);
    }
}
