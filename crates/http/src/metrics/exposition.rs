//! Writes metrics in the two exposition formats: OpenMetrics, and the older text format of
//! Prometheus.

use std::collections::HashSet;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::families::{self, MetricFamily, MetricKind, MetricValue, Sample};

/// An exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Each family with its samples.
#[derive(Debug)]
pub(super) struct CollectedMetrics(pub(super) Vec<(&'static MetricFamily, Vec<Sample>)>);

pub(super) fn write(collected: CollectedMetrics, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collected));
    let mut written = String::with_capacity(32 * 1024);
    text::encode(&mut written, &registry)?;
    Ok(match format {
        Format::OpenMetrics => written,
        Format::Prometheus => to_prometheus(&written),
    })
}

impl Collector for CollectedMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (family, samples) in &self.0 {
            let kind = match family.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let mut metric =
                encoder.encode_descriptor(openmetrics_name(family), family.help, None, kind)?;
            for (labels, value) in samples {
                if labels.is_empty() {
                    encode(&mut metric, value)?;
                } else {
                    let labels: Vec<(&str, String)> = labels
                        .iter()
                        .map(|(name, value)| (*name, escaped(value)))
                        .collect();
                    encode(&mut metric.encode_family(&labels)?, value)?;
                }
            }
        }
        Ok(())
    }
}

/// Escapes the value of a label, which the encoder does not do.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn encode(metric: &mut MetricEncoder<'_>, value: &MetricValue) -> Result<(), fmt::Error> {
    match value {
        MetricValue::Counter(count) => metric.encode_counter::<NoLabelSet, _, u64>(count, None),
        MetricValue::FloatCounter(sum) => metric.encode_counter::<NoLabelSet, _, u64>(sum, None),
        MetricValue::Gauge(level) => metric.encode_gauge(level),
        MetricValue::Histogram(reading) => metric.encode_histogram::<NoLabelSet>(
            reading.sum,
            reading.count,
            &reading.buckets,
            None,
        ),
    }
}

/// The name of a family in OpenMetrics: of a counter, without the `_total` of its samples.
fn openmetrics_name(family: &MetricFamily) -> &'static str {
    match family.kind {
        MetricKind::Counter => family.name.strip_suffix("_total").unwrap_or(family.name),
        MetricKind::Gauge | MetricKind::Histogram => family.name,
    }
}

/// Converts OpenMetrics to the text format of Prometheus, where a family of counters has the name
/// of its samples and nothing marks the end.
fn to_prometheus(text: &str) -> String {
    let counters: HashSet<&str> = families::all()
        .filter(|family| family.kind == MetricKind::Counter)
        .map(openmetrics_name)
        .collect();
    let mut out = String::with_capacity(text.len() + 1024);
    for line in text.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                out.extend(["# ", what, " ", name, "_total ", rest]);
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use tidegate_core::counters::Histogram;

    use super::*;

    fn sample() -> CollectedMetrics {
        let family = |name: &str| {
            families::all()
                .find(|family| family.name == name)
                .expect("the family exists")
        };
        let histogram = Histogram::new(&[0.5]);
        histogram.observe(0.25);
        histogram.observe(2.0);
        let model = ("model", "ann/\"echo\"".to_owned());
        CollectedMetrics(vec![
            (
                family("tidegate_jobs_accepted_total"),
                vec![(vec![model.clone()], MetricValue::Counter(3))],
            ),
            (
                family("tidegate_job_wait_seconds"),
                vec![(vec![model], MetricValue::Histogram(histogram.read()))],
            ),
            (
                family("process_open_fds"),
                vec![(vec![], MetricValue::Gauge(7.0))],
            ),
        ])
    }

    #[test]
    fn openmetrics_format() {
        insta::assert_snapshot!(write(sample(), Format::OpenMetrics).unwrap());
    }

    #[test]
    fn prometheus_format() {
        insta::assert_snapshot!(write(sample(), Format::Prometheus).unwrap());
    }
}
