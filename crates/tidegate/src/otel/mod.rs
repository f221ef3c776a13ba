//! Exports the spans of this process over OTLP.
//!
//! `tracer` samples spans and puts them in a bounded queue; `exporter` sends them in batches, in one task. No
//! request waits for the collector: spans that do not fit in the queue are dropped and counted.

mod exporter;
mod http_client;
mod losses;
mod tracer;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use tidegate_core::trace;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::exporter::BatchExporter;
use self::http_client::CollectorClient;
use self::losses::SpanLosses;
use self::tracer::OtlpTracer;
use crate::otel_env::OtelEnv;
use crate::usage_error::UsageError;

/// How long the last export may take at the end of the process.
const LAST_EXPORT: Duration = Duration::from_secs(3);

/// The running export of the spans of this process.
pub(crate) struct OtlpExport {
    stop: CancellationToken,
    tasks: TaskTracker,
    losses: Arc<SpanLosses>,
}

impl OtlpExport {
    /// Starts the export, under the name `service` if the environment gives no other.
    pub(crate) fn start(service: &'static str, env: &OtelEnv) -> anyhow::Result<Self> {
        let client = CollectorClient::new(env.timeout)?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(client)
            .build()
            .map_err(|error| {
                UsageError::new(format!("invalid settings for traces: {error}"))
                    .hint("check the environment variables OTEL_EXPORTER_OTLP_*")
            })?;
        let (stop, tasks, losses) = (
            CancellationToken::new(),
            TaskTracker::new(),
            Arc::new(SpanLosses::default()),
        );
        let (sender, receiver) = mpsc::channel(env.max_waiting);
        let resource = tracer::resource(service, env.service_name.as_deref());
        let exporter = BatchExporter::new(exporter, &resource, env, Arc::clone(&losses));
        tasks.spawn(exporter.run(receiver, stop.clone()));
        trace::install(Box::new(OtlpTracer::new(sender, Arc::clone(&losses))));
        tracing::info!("exporting traces");
        Ok(Self {
            stop,
            tasks,
            losses,
        })
    }

    /// Exports the spans that wait, for a bounded time.
    pub(crate) async fn finish(self) {
        self.stop.cancel();
        self.tasks.close();
        let finished = tokio::time::timeout(LAST_EXPORT, self.tasks.wait()).await;
        if finished.is_err() {
            tracing::warn!(limit = ?LAST_EXPORT, "failed to export the last spans in time");
        }
        self.losses.log_total();
    }
}
