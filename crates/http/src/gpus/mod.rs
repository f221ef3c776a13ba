//! Joins what the driver reports about GPUs with the processes of models.
//!
//! A process of a model holds what the driver reports for it and for the processes that it started. If the
//! driver's process ids cannot be compared with ours, what a process holds is unknown.

mod wire;

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::gpu::{Gpu, GpuProcess, GpuReport, GpuSource};
use tidegate_core::pool_status::{ProcessStatus, SpareKind};
use tidegate_service::JobService;

pub(crate) use wire::{GpuDocument, GpusDocument};

/// How many parents of a process are read.
const MAX_PARENTS: usize = 16;

/// A GPU with the processes that use it.
#[derive(Debug, PartialEq)]
pub(crate) struct GpuUsage {
    pub(crate) gpu: Gpu,
    /// The processes of models that it was given to, or that hold memory on it.
    pub(crate) children: Vec<GpuChild>,
    /// Processes that belong to no model of this server; `None` if that is unknown.
    pub(crate) others: Option<OtherProcesses>,
}

/// A process of a model that uses a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GpuChild {
    pub(crate) model: String,
    pub(crate) number: usize,
    /// For a process that waits to replace another: how much of the model it has loaded.
    pub(crate) spare: Option<SpareKind>,
    pub(crate) pid: Option<u32>,
    /// The memory that it holds, in bytes.
    pub(crate) memory: Option<u64>,
}

/// Processes of other programs on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OtherProcesses {
    pub(crate) count: usize,
    /// The memory that they hold, in bytes.
    pub(crate) memory: Option<u64>,
}

/// The GPUs of a server and the processes of its job services. Reads `/proc`, which blocks.
pub(crate) fn of_services(gpus: &Arc<dyn GpuSource>, services: &[JobService]) -> Vec<GpuUsage> {
    let report = gpus.report();
    if report.gpus.is_empty() {
        return Vec::new();
    }
    let processes = services.iter().flat_map(|jobs| {
        let model = jobs.target().model.clone();
        let pool = jobs.pool_status();
        let children = pool.children.into_iter().map(|child| (None, child));
        let spares = pool.spares.into_iter();
        let spares = spares.map(|spare| (Some(spare.kind), spare.process));
        children
            .chain(spares)
            .map(move |(spare, process)| ModelProcess {
                model: model.clone(),
                spare,
                process,
            })
    });
    let processes: Vec<ModelProcess> = processes.collect();
    usage(&report, &processes, parent_of)
}

/// A process of a model.
#[derive(Debug)]
pub(crate) struct ModelProcess {
    pub(crate) model: String,
    /// For one that waits to replace another: how much of the model it has loaded.
    pub(crate) spare: Option<SpareKind>,
    pub(crate) process: ProcessStatus,
}

/// Joins a report with the processes of models. `parent_of` is the parent of a process.
pub(crate) fn usage(
    report: &GpuReport,
    children: &[ModelProcess],
    parent_of: impl Fn(u32) -> Option<u32>,
) -> Vec<GpuUsage> {
    let by_pid: HashMap<u32, usize> = (0..)
        .zip(children)
        .filter_map(|(n, child)| Some((child.process.pid?, n)))
        .collect();
    let owner = |pid: u32| {
        let line = std::iter::successors(Some(pid), |pid| parent_of(*pid));
        line.take(MAX_PARENTS)
            .find_map(|pid| by_pid.get(&pid).copied())
    };
    let join = |gpu: &Gpu| {
        let processes = gpu.processes.as_deref().filter(|_| report.pids_match);
        let mut held: HashMap<usize, Option<u64>> = HashMap::new();
        let mut others = Vec::new();
        for process in processes.unwrap_or_default() {
            match owner(process.pid) {
                Some(n) => add(held.entry(n).or_insert(Some(0)), process.memory),
                None => others.push(*process),
            }
        }
        let uses =
            |n: usize, child: &ProcessStatus| held.contains_key(&n) || child.gpus.contains(&gpu.id);
        let users = (0..)
            .zip(children)
            .filter(|(n, child)| uses(*n, &child.process));
        let users = users.map(|(n, child)| GpuChild {
            model: child.model.clone(),
            number: child.process.number,
            spare: child.spare,
            pid: child.process.pid,
            memory: match (held.get(&n), processes) {
                (Some(memory), _) => *memory,
                // The driver names all processes, and this one is not among them.
                (None, Some(_)) => Some(0),
                (None, None) => None,
            },
        });
        GpuUsage {
            children: users.collect(),
            others: processes.map(|_| OtherProcesses::of(&others)),
            gpu: gpu.clone(),
        }
    };
    report.gpus.iter().map(join).collect()
}

/// Adds memory to a sum, which is unknown as soon as one part of it is.
fn add(sum: &mut Option<u64>, memory: Option<u64>) {
    *sum = sum.zip(memory).map(|(sum, memory)| sum + memory);
}

impl OtherProcesses {
    fn of(processes: &[GpuProcess]) -> Self {
        let mut memory = Some(0);
        for process in processes {
            add(&mut memory, process.memory);
        }
        Self {
            count: processes.len(),
            memory,
        }
    }
}

/// The parent of a process, if there is one.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain any character.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    parent.parse().ok().filter(|parent| *parent > 1)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tidegate_core::gpu::{GpuId, GpuKind, XidErrors};
    use tidegate_core::pool_status::ProcessState;

    use super::*;

    fn gpu(index: u32, processes: Option<Vec<GpuProcess>>) -> Gpu {
        Gpu {
            id: GpuId::card(index),
            index,
            kind: GpuKind::Card,
            uuid: format!("GPU-{index}"),
            name: None,
            memory: None,
            utilization: None,
            temperature: None,
            processes,
            xids: XidErrors::default(),
        }
    }

    fn process(pid: u32, memory: impl Into<Option<u64>>) -> GpuProcess {
        let memory = memory.into();
        GpuProcess { pid, memory }
    }

    fn child(number: usize, pid: u32, gpus: &[u32]) -> ModelProcess {
        let process = ProcessStatus {
            number,
            pid: Some(pid),
            state: ProcessState::Ready,
            since: Timestamp::UNIX_EPOCH,
            slots: 1,
            jobs: 0,
            memory: None,
            gpus: gpus.iter().copied().map(GpuId::card).collect(),
            restarts: 0,
            last_end: None,
        };
        ModelProcess {
            model: "local/a".to_owned(),
            spare: None,
            process,
        }
    }

    fn report(pids_match: bool, processes: Option<Vec<GpuProcess>>) -> GpuReport {
        GpuReport {
            gpus: vec![gpu(0, processes)],
            pids_match,
            ..GpuReport::default()
        }
    }

    fn held(usage: &[GpuUsage]) -> Vec<(usize, Option<u64>)> {
        let children = usage[0].children.iter();
        children.map(|child| (child.number, child.memory)).collect()
    }

    #[test]
    fn a_child_holds_what_it_and_its_descendants_hold() {
        let report = report(
            true,
            Some(vec![process(10, 5), process(30, 7), process(99, 1)]),
        );
        let parents = |pid| {
            [(30, 20), (20, 10)]
                .into_iter()
                .find(|(of, _)| *of == pid)
                .map(|(_, parent)| parent)
        };
        let usage = usage(&report, &[child(0, 10, &[]), child(1, 11, &[0])], parents);
        assert_eq!(held(&usage), [(0, Some(12)), (1, Some(0))]);
        let others = OtherProcesses {
            count: 1,
            memory: Some(1),
        };
        assert_eq!(usage[0].others, Some(others));
    }

    #[test]
    fn what_cannot_be_compared_is_unknown() {
        let foreign = report(false, Some(vec![process(10, 5)]));
        let children = [child(0, 10, &[0]), child(1, 11, &[])];
        let joined = usage(&foreign, &children, |_| None);
        assert_eq!((held(&joined), joined[0].others), (vec![(0, None)], None));
        let unsupported = usage(&report(true, None), &children, |_| None);
        assert_eq!(held(&unsupported), [(0, None)]);
        let without_memory = report(true, Some(vec![process(10, None), process(11, 3)]));
        let joined = usage(&without_memory, &children, |_| None);
        assert_eq!(held(&joined), [(0, None), (1, Some(3))]);
    }
}
