//! The body of a stream of text: rendered events, and comments while the model is silent.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use tidegate_core::text_generation::{TextError, TextEvent};

use super::text_job::TextJob;

/// A comment is sent after this much silence, so that no proxy closes the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const COMMENT: &str = ": keep-alive\n\n";

/// The beginning of a text. A response waits for it, so that a job that fails at once has an error status.
pub(crate) struct FirstEvents {
    job: TextJob,
    /// `None` if the model was silent for the time after which a comment is sent.
    events: Option<Vec<TextEvent>>,
}

impl FirstEvents {
    /// Waits for the first text, but not longer than a client should wait for the head of a response.
    pub(crate) async fn wait(mut job: TextJob) -> Result<Self, TextError> {
        let events = tokio::time::timeout(KEEP_ALIVE, async {
            loop {
                match job.next().await {
                    Some(events) if events.is_empty() => {}
                    events => return events.unwrap_or_default(),
                }
            }
        });
        let events = events.await.ok();
        if let Some([TextEvent::Failed(error)]) = events.as_deref() {
            return Err(error.clone());
        }
        Ok(Self { job, events })
    }

    /// The job.
    pub(crate) fn job(&self) -> &TextJob {
        &self.job
    }
}

/// The body that begins with `start` and renders each event.
pub(crate) fn stream_body(
    first: FirstEvents,
    start: String,
    render: impl Fn(&TextEvent) -> String + Send + 'static,
) -> Body {
    let mut text = start;
    match &first.events {
        Some(events) => text.extend(events.iter().map(&render)),
        None => text.push_str(COMMENT),
    }
    let state = (Some(Bytes::from(text)), first.job, render);
    Body::from_stream(stream::unfold(
        state,
        |(start, mut job, render)| async move {
            if let Some(start) = start.filter(|start| !start.is_empty()) {
                return Some((Ok::<_, Infallible>(start), (None, job, render)));
            }
            loop {
                let text = match tokio::time::timeout(KEEP_ALIVE, job.next()).await {
                    Err(_) => Bytes::from_static(COMMENT.as_bytes()),
                    Ok(None) => return None,
                    Ok(Some(events)) => events.iter().map(&render).collect::<String>().into(),
                };
                if !text.is_empty() {
                    return Some((Ok(text), (None, job, render)));
                }
            }
        },
    ))
}
