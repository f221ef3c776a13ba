//! What `tidegate doctor` says about GPUs.

use tidegate_core::gpu::{Gpu, GpuKind, GpuReport, GpuSource};
use tidegate_gpu::{GpuMonitor, PidTrust};

use super::doctor::CheckReport;
use crate::model_source::ModelSource;

/// Whether there is a GPU for models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GpuPresence {
    Present,
    Absent,
}

/// Shows each GPU.
pub(super) fn check(checks: &CheckReport) -> GpuPresence {
    let report = GpuMonitor::start(PidTrust::Auto, |_| ()).report();
    if let Some(problem) = &report.problem {
        checks.warn(
            &format!("the NVIDIA driver does not work: {problem}"),
            "`nvidia-smi` on this machine, and the options of the container for GPUs",
        );
        return GpuPresence::Absent;
    }
    if report.gpus.is_empty() {
        checks.pass("no NVIDIA GPU");
        return GpuPresence::Absent;
    }
    for gpu in &report.gpus {
        checks.pass(&describe(gpu, &report));
    }
    GpuPresence::Present
}

/// Warns about a model that asks for a GPU on a machine without one.
pub(super) fn check_model(checks: &CheckReport, model: &ModelSource, gpus: GpuPresence) {
    if model.gpu == Some(true) && gpus == GpuPresence::Absent {
        checks.warn(
            "`build.gpu` in cog.yaml asks for a GPU, and this machine has none that tidegate manages: the model runs on the CPU",
            "a machine with an NVIDIA GPU and its driver",
        );
    }
}

fn describe(gpu: &Gpu, report: &GpuReport) -> String {
    let what = match gpu.kind {
        GpuKind::Card | GpuKind::Divided => format!("GPU {}", gpu.index),
        GpuKind::MigDevice => format!("MIG device {} of GPU {}", gpu.uuid, gpu.index),
    };
    let name = gpu.name.as_deref().unwrap_or("unknown name");
    let memory = gpu.memory.map_or_else(
        || "unknown memory".to_owned(),
        |memory| format!("{} of {} used", gib(memory.used), gib(memory.total)),
    );
    let known = |value: Option<u32>, unit: &str| value.map(|value| format!("{value} {unit}"));
    let rest = [
        known(gpu.utilization, "% busy"),
        known(gpu.temperature, "°C"),
        report
            .driver
            .as_ref()
            .map(|driver| format!("driver {driver}")),
        (gpu.kind == GpuKind::Divided).then(|| "divided by MIG".to_owned()),
    ];
    let facts: Vec<String> = [memory]
        .into_iter()
        .chain(rest.into_iter().flatten())
        .collect();
    format!("{what}: {name}, {}", facts.join(", "))
}

/// A size in GiB with one decimal place.
fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}
