//! The metric families of a machine with GPUs. What the driver does not know has no sample.

use tidegate_core::gpu::Gpu;

use super::families::{MetricFamily, MetricSnapshot, MetricValue, Sample, counter, gauge};
use crate::gpus::GpuUsage;

/// The families of a process that reads the state of GPUs.
pub(super) const GPUS: &[MetricFamily] = &[
    gauge(
        "tidegate_gpu_info",
        "Always 1, with the name and the unique id of a GPU",
        |snapshot| {
            let sample = |usage: &GpuUsage| {
                let gpu = &usage.gpu;
                let name = gpu.name.clone().unwrap_or_default();
                let labels = vec![label(gpu), ("uuid", gpu.uuid.clone()), ("name", name)];
                (labels, MetricValue::Gauge(1.0))
            };
            snapshot.gpus.iter().map(sample).collect()
        },
    ),
    gauge(
        "tidegate_gpu_memory_total_bytes",
        "Memory of a GPU",
        |snapshot| each(snapshot, |gpu| gpu.memory.map(|memory| memory.total as f64)),
    ),
    gauge(
        "tidegate_gpu_memory_used_bytes",
        "Memory of a GPU that processes use",
        |snapshot| each(snapshot, |gpu| gpu.memory.map(|memory| memory.used as f64)),
    ),
    gauge(
        "tidegate_gpu_utilization_ratio",
        "Part of the time in which a GPU was busy, from 0 to 1",
        |snapshot| {
            each(snapshot, |gpu| {
                gpu.utilization.map(|percent| f64::from(percent) / 100.0)
            })
        },
    ),
    gauge(
        "tidegate_gpu_temperature_celsius",
        "Temperature of a GPU",
        |snapshot| each(snapshot, |gpu| gpu.temperature.map(f64::from)),
    ),
    gauge(
        "tidegate_gpu_child_memory_bytes",
        "Memory of a GPU that a process of the model holds",
        |snapshot| snapshot.gpus.iter().flat_map(children).collect(),
    ),
    counter(
        "tidegate_gpu_xid_errors_total",
        "Critical errors of a GPU",
        |snapshot| {
            let sample = |usage: &GpuUsage| {
                let count = MetricValue::Counter(usage.gpu.xids.count);
                (vec![label(&usage.gpu)], count)
            };
            snapshot.gpus.iter().map(sample).collect()
        },
    ),
    gauge(
        "tidegate_gpu_cordoned",
        "1 if a critical error keeps the GPU from getting processes, else 0",
        |snapshot| {
            each(snapshot, |gpu| {
                Some(f64::from(u8::from(gpu.xids.cordoned_by.is_some())))
            })
        },
    ),
];

fn label(gpu: &Gpu) -> (&'static str, String) {
    ("gpu", gpu.id.to_string())
}

fn each(snapshot: &MetricSnapshot<'_>, value: fn(&Gpu) -> Option<f64>) -> Vec<Sample> {
    let sample = |usage: &GpuUsage| {
        let value = MetricValue::Gauge(value(&usage.gpu)?);
        Some((vec![label(&usage.gpu)], value))
    };
    snapshot.gpus.iter().filter_map(sample).collect()
}

fn children(usage: &GpuUsage) -> Vec<Sample> {
    let sample = |child: &crate::gpus::GpuChild| {
        let labels = vec![
            label(&usage.gpu),
            ("model", child.model.clone()),
            ("child", child.number.to_string()),
        ];
        Some((labels, MetricValue::Gauge(child.memory? as f64)))
    };
    usage.children.iter().filter_map(sample).collect()
}
