//! The tables of `tidegate ps` about GPUs: the cards, and the processes that hold their memory.

use indicatif::BinaryBytes;

use super::status::{GpuRow, ServerStatus};
use super::tables::{RowFilter, or_none, table};

/// The GPUs of the machine.
pub(super) fn cards(status: &ServerStatus) -> String {
    table(
        &["GPU", "NAME", "MEMORY", "BUSY", "TEMP", "XIDS", "DETAIL"],
        status.gpus.iter().map(|gpu| {
            let busy = gpu.utilization_percent;
            let temperature = gpu.temperature_celsius;
            let cordon = gpu.cordoned_by_xid;
            vec![
                gpu.id.clone(),
                or_none(gpu.name.clone()),
                or_none(memory(gpu)),
                or_none(busy.map(|percent| format!("{percent}%"))),
                or_none(temperature.map(|degrees| format!("{degrees}°C"))),
                gpu.xid_errors.to_string(),
                or_none(cordon.map(|xid| format!("cordoned after Xid {xid}"))),
            ]
        }),
    )
}

/// The processes on the GPUs. Those of other programs have no model, so a filter hides them.
pub(super) fn holders(status: &ServerStatus, filter: RowFilter<'_>) -> String {
    let rows = status.gpus.iter().flat_map(|gpu| {
        let shown = gpu.children.iter();
        let shown = shown.filter(|child| filter.has_model(&child.name.model));
        let own = shown.map(|child| {
            vec![
                gpu.id.clone(),
                child.name.to_string(),
                or_none(child.pid.map(|pid| pid.to_string())),
                or_none(child.memory_bytes.map(size)),
            ]
        });
        let others = gpu.other_processes.filter(|count| *count > 0);
        let others = others.filter(|_| filter.model.is_none()).map(|count| {
            vec![
                gpu.id.clone(),
                format!("{count} of other programs"),
                or_none(None),
                or_none(gpu.other_memory_bytes.map(size)),
            ]
        });
        own.chain(others)
    });
    table(&["GPU", "PROCESS", "PID", "GPU MEMORY"], rows)
}

fn memory(gpu: &GpuRow) -> Option<String> {
    let (used, total) = (gpu.memory_used_bytes?, gpu.memory_total_bytes?);
    Some(format!("{} of {}", size(used), size(total)))
}

fn size(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}
