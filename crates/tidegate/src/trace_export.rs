//! The export of traces, which the cargo feature `otel` builds in.

#[cfg(feature = "otel")]
use crate::otel::OtlpExport;
use crate::otel_env::OtelEnv;

/// The export of the spans of this process; empty if the environment names no collector.
#[derive(Default)]
pub(crate) struct TraceExport {
    #[cfg(feature = "otel")]
    otlp: Option<OtlpExport>,
}

impl TraceExport {
    /// Starts the export if the environment names a collector. `service` is the name of this process in
    /// traces if the environment does not give it another one.
    #[cfg(feature = "otel")]
    pub(crate) fn start(service: &'static str) -> anyhow::Result<Self> {
        let env = OtelEnv::read()?;
        let otlp = env
            .map(|env| OtlpExport::start(service, &env))
            .transpose()?;
        Ok(Self { otlp })
    }

    /// Warns if the environment names a collector.
    #[cfg(not(feature = "otel"))]
    pub(crate) fn start(_service: &'static str) -> anyhow::Result<Self> {
        if OtelEnv::read()?.is_some() {
            tracing::warn!(
                "exporting no traces: this program was built without the feature `otel`"
            );
        }
        Ok(Self::default())
    }

    /// Exports the spans that wait. It is the last step of a shutdown, because the steps before it end spans.
    pub(crate) async fn finish(self) {
        #[cfg(feature = "otel")]
        if let Some(otlp) = self.otlp {
            otlp.finish().await;
        }
    }
}
