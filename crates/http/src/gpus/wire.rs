//! The documents about GPUs, in the admin API and in the data of the page. `null` is unknown.

use serde::Serialize;
use tidegate_core::gpu::{GpuKind, GpuReport};
use tidegate_core::pool_status::SpareKind;

use super::{GpuChild, GpuUsage};

/// All GPUs.
#[derive(Debug, Serialize)]
pub(crate) struct GpusDocument {
    driver: Option<String>,
    gpus: Vec<GpuDocument>,
    /// Why the driver could not be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

impl GpusDocument {
    pub(crate) fn new(report: &GpuReport, gpus: Vec<GpuUsage>) -> Self {
        Self {
            driver: report.driver.clone(),
            gpus: gpus.into_iter().map(GpuDocument::from).collect(),
            problem: report.problem.clone(),
        }
    }
}

/// One GPU.
#[derive(Debug, Serialize)]
pub(crate) struct GpuDocument {
    /// How `CUDA_VISIBLE_DEVICES` names it.
    id: String,
    index: u32,
    kind: &'static str,
    uuid: String,
    name: Option<String>,
    memory_total_bytes: Option<u64>,
    memory_used_bytes: Option<u64>,
    memory_free_bytes: Option<u64>,
    utilization_percent: Option<u32>,
    temperature_celsius: Option<u32>,
    xid_errors: u64,
    last_xid: Option<u64>,
    /// Why the GPU gets no more processes.
    cordoned_by_xid: Option<u64>,
    children: Vec<ChildOnGpu>,
    other_processes: Option<usize>,
    other_memory_bytes: Option<u64>,
}

/// A process of a model on a GPU.
#[derive(Debug, Serialize)]
struct ChildOnGpu {
    model: String,
    number: usize,
    /// For a process that waits to replace another: how much of the model it has loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    spare: Option<SpareKind>,
    pid: Option<u32>,
    memory_bytes: Option<u64>,
}

impl From<GpuUsage> for GpuDocument {
    fn from(usage: GpuUsage) -> Self {
        let GpuUsage {
            gpu,
            children,
            others,
        } = usage;
        Self {
            id: gpu.id.to_string(),
            index: gpu.index,
            kind: match gpu.kind {
                GpuKind::Card => "card",
                GpuKind::Divided => "divided",
                GpuKind::MigDevice => "mig",
            },
            uuid: gpu.uuid,
            name: gpu.name,
            memory_total_bytes: gpu.memory.map(|memory| memory.total),
            memory_used_bytes: gpu.memory.map(|memory| memory.used),
            memory_free_bytes: gpu.memory.map(|memory| memory.free),
            utilization_percent: gpu.utilization,
            temperature_celsius: gpu.temperature,
            xid_errors: gpu.xids.count,
            last_xid: gpu.xids.last,
            cordoned_by_xid: gpu.xids.cordoned_by,
            children: children.into_iter().map(ChildOnGpu::from).collect(),
            other_processes: others.map(|others| others.count),
            other_memory_bytes: others.and_then(|others| others.memory),
        }
    }
}

impl From<GpuChild> for ChildOnGpu {
    fn from(child: GpuChild) -> Self {
        Self {
            model: child.model,
            number: child.number,
            spare: child.spare,
            pid: child.pid,
            memory_bytes: child.memory,
        }
    }
}
