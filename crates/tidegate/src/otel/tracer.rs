//! Samples spans as the environment says, and converts them to those of the OpenTelemetry SDK.

use std::sync::Arc;

use opentelemetry::trace::{
    self as otel, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace as sdk;
use opentelemetry_sdk::trace::{SamplingDecision, ShouldSample};
use tidegate_core::trace::{AttributeValue, SpanContext, SpanData, SpanKind, Tracer};
use tokio::sync::mpsc;

use super::losses::SpanLosses;

/// What describes this process in traces.
pub(super) fn resource(default_name: &'static str, name: Option<&str>) -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder_empty()
        .with_service_name(default_name)
        .with_attribute(version)
        .with_detector(Box::new(TelemetryResourceDetector))
        // OTEL_RESOURCE_ATTRIBUTES, which may contain a name.
        .with_detector(Box::new(EnvResourceDetector::new()));
    match name {
        Some(name) => builder.with_service_name(name.to_owned()).build(),
        None => builder.build(),
    }
}

/// The tracer of this process.
pub(super) struct OtlpTracer {
    sampler: Box<dyn ShouldSample>,
    scope: InstrumentationScope,
    waiting: mpsc::Sender<sdk::SpanData>,
    losses: Arc<SpanLosses>,
}

impl OtlpTracer {
    pub(super) fn new(waiting: mpsc::Sender<sdk::SpanData>, losses: Arc<SpanLosses>) -> Self {
        Self {
            // OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG.
            sampler: sdk::Config::default().sampler,
            scope: InstrumentationScope::builder("tidegate")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            waiting,
            losses,
        }
    }
}

impl Tracer for OtlpTracer {
    fn is_sampled(
        &self,
        context: SpanContext,
        parent: Option<SpanContext>,
        name: &str,
        kind: SpanKind,
    ) -> bool {
        let parent =
            parent.map(|parent| Context::new().with_remote_span_context(otel_context(parent)));
        let trace_id = TraceId::from(context.trace_id);
        let result =
            self.sampler
                .should_sample(parent.as_ref(), trace_id, name, &otel_kind(kind), &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }

    fn export(&self, span: SpanData) {
        let span = sdk::SpanData {
            span_context: otel_context(span.context),
            parent_span_id: span
                .parent
                .map_or(SpanId::INVALID, |parent| parent.span_id.into()),
            parent_span_is_remote: span.kind == SpanKind::Server,
            span_kind: otel_kind(span.kind),
            name: span.name,
            start_time: span.started_at.into(),
            end_time: span.ended_at.into(),
            attributes: span.attributes.into_iter().map(key_value).collect(),
            dropped_attributes_count: 0,
            events: sdk::SpanEvents::default(),
            links: sdk::SpanLinks::default(),
            status: if span.is_error {
                Status::error("")
            } else {
                Status::Unset
            },
            instrumentation_scope: self.scope.clone(),
        };
        if self.waiting.try_send(span).is_err() {
            self.losses.add(1, "the queue of spans is full");
        }
    }
}

fn otel_context(context: SpanContext) -> otel::SpanContext {
    let flags = if context.is_sampled {
        TraceFlags::SAMPLED
    } else {
        TraceFlags::NOT_SAMPLED
    };
    otel::SpanContext::new(
        context.trace_id.into(),
        context.span_id.into(),
        flags,
        true,
        TraceState::NONE,
    )
}

fn otel_kind(kind: SpanKind) -> otel::SpanKind {
    match kind {
        SpanKind::Server => otel::SpanKind::Server,
        SpanKind::Client => otel::SpanKind::Client,
        SpanKind::Internal => otel::SpanKind::Internal,
    }
}

fn key_value((name, value): (&'static str, AttributeValue)) -> KeyValue {
    let value = match value {
        AttributeValue::Text(text) => Value::from(text),
        AttributeValue::Number(number) => Value::I64(number),
    };
    KeyValue::new(name, value)
}
