//! The task that sends spans to the collector in batches.

use std::sync::Arc;

use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::losses::SpanLosses;
use crate::otel_env::OtelEnv;

/// Sends spans to the collector.
pub(super) struct BatchExporter {
    exporter: SpanExporter,
    env: OtelEnv,
    losses: Arc<SpanLosses>,
}

impl BatchExporter {
    pub(super) fn new(
        mut exporter: SpanExporter,
        resource: &Resource,
        env: &OtelEnv,
        losses: Arc<SpanLosses>,
    ) -> Self {
        exporter.set_resource(resource);
        Self {
            exporter,
            env: env.clone(),
            losses,
        }
    }

    /// Sends spans until `stop` is cancelled, and then those that wait.
    pub(super) async fn run(self, mut waiting: mpsc::Receiver<SpanData>, stop: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            stop.run_until_cancelled(self.fill(&mut batch, &mut waiting))
                .await;
            while stop.is_cancelled()
                && batch.len() < self.env.max_batch
                && let Ok(span) = waiting.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            self.export(std::mem::take(&mut batch)).await;
        }
    }

    /// Adds spans until the batch is full or its first span has waited long enough. If this is cancelled, the
    /// batch keeps what it has.
    async fn fill(&self, batch: &mut Vec<SpanData>, waiting: &mut mpsc::Receiver<SpanData>) {
        batch.extend(waiting.recv().await);
        let full = async {
            while batch.len() < self.env.max_batch
                && let Some(span) = waiting.recv().await
            {
                batch.push(span);
            }
        };
        // A batch that is not full is sent as well.
        tokio::time::timeout(self.env.batch_delay, full).await.ok();
    }

    async fn export(&self, batch: Vec<SpanData>) {
        let count = batch.len();
        match self.exporter.export(batch).await {
            Ok(()) => self.losses.export_succeeded(),
            Err(error) => self.losses.add(count, &error.to_string()),
        }
    }
}
