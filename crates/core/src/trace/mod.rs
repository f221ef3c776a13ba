//! Spans of distributed traces: what is measured, and the port that exports it.
//!
//! The layers create [`Span`]s at a few places; the binary installs the [`Tracer`] that samples and exports
//! them. Without one, no span exists, and [`is_enabled`] is one atomic load. The tracer is one per process,
//! like the subscriber of the logs: passing it through every layer would make each of them know about
//! exporters.

mod context;
mod request;

use std::borrow::Cow;
use std::sync::OnceLock;

use jiff::Timestamp;

pub use context::SpanContext;
pub use request::{RequestScope, keep_request_span, request_context};

use crate::{clock, random};

/// The header of a trace context (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

/// Samples and exports the spans of this process.
pub trait Tracer: Send + Sync {
    /// Whether a span that starts is exported. `context` is its own; its flag is not decided yet.
    fn is_sampled(
        &self,
        context: SpanContext,
        parent: Option<SpanContext>,
        name: &str,
        kind: SpanKind,
    ) -> bool;

    /// Exports a span that has ended. It must not block.
    fn export(&self, span: SpanData);
}

/// Exports the spans of this process through `tracer` from now on. The first call counts.
pub fn install(tracer: Box<dyn Tracer>) {
    TRACER.set(tracer).ok();
}

/// Whether this process exports spans.
pub fn is_enabled() -> bool {
    TRACER.get().is_some()
}

/// The role of a span in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Answers a request of another process.
    Server,
    /// Sends a request to another process.
    Client,
    /// Work inside this process.
    Internal,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

/// What is exported of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanData {
    /// Its own context.
    pub context: SpanContext,
    /// The context of its parent; `None` for the first span of a trace.
    pub parent: Option<SpanContext>,
    /// What it measures.
    pub name: Cow<'static, str>,
    /// Its role.
    pub kind: SpanKind,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Details. Never inputs, outputs or tokens.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Whether what it measures has failed.
    pub is_error: bool,
}

/// A span that has started. It ends, and is exported, when it is dropped.
#[derive(Debug)]
pub struct Span {
    context: SpanContext,
    /// `None` if the span is not sampled.
    data: Option<Box<SpanData>>,
    ended_at: Option<Timestamp>,
}

impl Span {
    /// Starts a span now; `None` if this process exports no spans. Without a parent it starts a trace.
    pub fn start(
        name: impl Into<Cow<'static, str>>,
        kind: SpanKind,
        parent: Option<SpanContext>,
    ) -> Option<Self> {
        Self::start_at(name, kind, parent, clock::now())
    }

    /// Starts a span that began at `started_at`.
    pub fn start_at(
        name: impl Into<Cow<'static, str>>,
        kind: SpanKind,
        parent: Option<SpanContext>,
        started_at: Timestamp,
    ) -> Option<Self> {
        Some(Self::start_with(
            &**TRACER.get()?,
            name.into(),
            kind,
            parent,
            started_at,
        ))
    }

    fn start_with(
        tracer: &dyn Tracer,
        name: Cow<'static, str>,
        kind: SpanKind,
        parent: Option<SpanContext>,
        started_at: Timestamp,
    ) -> Self {
        let mut context = SpanContext::random(parent, random::bits);
        context.is_sampled = tracer.is_sampled(context, parent, &name, kind);
        let data = context.is_sampled.then(|| {
            Box::new(SpanData {
                context,
                parent,
                name,
                kind,
                started_at,
                ended_at: started_at,
                attributes: Vec::new(),
                is_error: false,
            })
        });
        Self {
            context,
            data,
            ended_at: None,
        }
    }

    /// The context for its children, here or in other processes.
    pub fn context(&self) -> SpanContext {
        self.context
    }

    /// Adds a detail.
    pub fn attribute(&mut self, name: &'static str, value: impl Into<AttributeValue>) {
        if let Some(data) = &mut self.data {
            data.attributes.push((name, value.into()));
        }
    }

    /// What it measures has failed.
    pub fn fail(&mut self) {
        if let Some(data) = &mut self.data {
            data.is_error = true;
        }
    }

    /// Sets when it ended, if that is not when it is dropped. The first call counts.
    pub fn set_end(&mut self, at: Timestamp) {
        self.ended_at.get_or_insert(at);
    }

    /// Ends the span without exporting it.
    pub fn discard(&mut self) {
        self.data = None;
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let (Some(mut data), Some(tracer)) = (self.data.take(), TRACER.get()) {
            // The clock may have been set back.
            let ended_at = self.ended_at.unwrap_or_else(clock::now);
            data.ended_at = ended_at.max(data.started_at);
            tracer.export(*data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples the spans whose parents are sampled.
    struct ParentSampler;

    impl Tracer for ParentSampler {
        fn is_sampled(
            &self,
            _context: SpanContext,
            parent: Option<SpanContext>,
            _name: &str,
            _kind: SpanKind,
        ) -> bool {
            parent.is_none_or(|parent| parent.is_sampled)
        }

        fn export(&self, _span: SpanData) {}
    }

    fn start(parent: Option<SpanContext>) -> Span {
        let kind = SpanKind::Internal;
        Span::start_with(&ParentSampler, "a".into(), kind, parent, clock::now())
    }

    #[test]
    fn a_child_is_in_the_trace_of_its_parent() {
        let parent = start(None);
        let child = start(Some(parent.context()));
        assert_eq!(child.context().trace_id, parent.context().trace_id);
        assert_ne!(child.context().span_id, parent.context().span_id);
        assert!(child.data.is_some());
    }

    #[test]
    fn the_child_of_an_unsampled_span_has_a_context_and_no_data() {
        let parent = SpanContext {
            is_sampled: false,
            ..start(None).context()
        };
        let child = start(Some(parent));
        assert_eq!(child.context().trace_id, parent.trace_id);
        assert!(child.context().to_string().ends_with("-00"));
        assert!(child.data.is_none());
    }

    #[test]
    fn without_a_tracer_no_span_exists() {
        assert!(Span::start("a", SpanKind::Internal, None).is_none());
        assert!(!is_enabled());
    }
}
