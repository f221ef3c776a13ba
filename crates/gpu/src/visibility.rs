//! The GPUs that the environment of the server allows it to use.
//!
//! `CUDA_VISIBLE_DEVICES` is read as CUDA reads it, with indices in PCI order: the list ends at the first
//! entry that names no GPU. Of `NVIDIA_VISIBLE_DEVICES` only UUIDs and `none` count: a container runtime has
//! applied it already, so that the driver numbers the remaining cards from zero.

use tidegate_core::gpu::{Gpu, GpuKind, GpuReport};

/// The variables that limit which GPUs are visible.
#[derive(Debug, Clone, Default)]
pub struct InheritedVisibility {
    /// `CUDA_VISIBLE_DEVICES`.
    pub cuda: Option<String>,
    /// `NVIDIA_VISIBLE_DEVICES`.
    pub nvidia: Option<String>,
}

impl InheritedVisibility {
    /// The usable GPUs of a report that are visible, in the order of the variable.
    pub fn visible(&self, report: &GpuReport) -> Vec<Gpu> {
        let allowed = self.in_container(report);
        let Some(list) = &self.cuda else {
            return allowed;
        };
        let mut visible: Vec<Gpu> = Vec::new();
        for entry in list.split(',').map(str::trim) {
            // CUDA takes the first part of a divided card.
            let Some(gpu) = named(&allowed, entry).next() else {
                break;
            };
            if !visible.contains(gpu) {
                visible.push(gpu.clone());
            }
        }
        visible
    }

    fn in_container(&self, report: &GpuReport) -> Vec<Gpu> {
        let all: Vec<Gpu> = report.usable().cloned().collect();
        let entries: Vec<&str> = self
            .nvidia
            .iter()
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .collect();
        if entries == ["none"] {
            return Vec::new();
        }
        let is_uuid = |entry: &&str| entry.starts_with("GPU-") || entry.starts_with("MIG-");
        if entries.is_empty() || !entries.iter().all(is_uuid) {
            return all;
        }
        let is_named = |gpu: &Gpu| {
            let names = entries.iter();
            names
                .into_iter()
                .any(|entry| named(&all, entry).any(|named| named == gpu))
        };
        all.iter().filter(|gpu| is_named(gpu)).cloned().collect()
    }
}

/// The GPUs that an entry names: a card by its index or by its UUID or the beginning of it, or all parts of
/// a divided card, or a part by its UUID.
pub(crate) fn named<'a>(gpus: &'a [Gpu], entry: &'a str) -> impl Iterator<Item = &'a Gpu> {
    let index = entry.parse::<u32>().ok();
    gpus.iter().filter(move |gpu| match gpu.kind {
        GpuKind::Card => {
            index == Some(gpu.index) || (entry.starts_with("GPU-") && gpu.uuid.starts_with(entry))
        }
        GpuKind::MigDevice => index == Some(gpu.index) || gpu.uuid == entry,
        GpuKind::Divided => false,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use tidegate_core::gpu::{GpuId, GpuMemory, XidErrors};

    use super::*;

    /// A card of 80 GiB.
    pub(crate) fn card(index: u32) -> Gpu {
        let total = 80 << 30;
        Gpu {
            id: GpuId::card(index),
            index,
            kind: GpuKind::Card,
            uuid: format!("GPU-{index}{index}-x"),
            name: Some("card".to_owned()),
            memory: Some(GpuMemory {
                total,
                free: total,
                used: 0,
            }),
            utilization: None,
            temperature: None,
            processes: Some(Vec::new()),
            xids: XidErrors::default(),
        }
    }

    fn mig(index: u32, name: &str) -> Gpu {
        Gpu {
            id: GpuId::mig(name),
            kind: GpuKind::MigDevice,
            uuid: name.to_owned(),
            ..card(index)
        }
    }

    /// Cards 0 and 1, and card 2 in two parts.
    pub(crate) fn machine() -> GpuReport {
        let divided = Gpu {
            kind: GpuKind::Divided,
            ..card(2)
        };
        GpuReport {
            gpus: vec![card(0), card(1), divided, mig(2, "MIG-a"), mig(2, "MIG-b")],
            ..GpuReport::default()
        }
    }

    fn ids(gpus: &[Gpu]) -> Vec<&str> {
        gpus.iter().map(|gpu| gpu.id.as_str()).collect()
    }

    #[test]
    fn the_list_of_cuda_ends_at_the_first_unknown_entry() {
        for (list, expected) in [
            (None, vec!["0", "1", "MIG-a", "MIG-b"]),
            (Some("1"), vec!["1"]),
            (Some("1,0"), vec!["1", "0"]),
            (Some("1, 1"), vec!["1"]),
            (Some("0,-1,1"), vec!["0"]),
            (Some("0,7,1"), vec!["0"]),
            (Some(""), vec![]),
            (Some("GPU-1"), vec!["1"]),
            (Some("MIG-b"), vec!["MIG-b"]),
            (Some("2"), vec!["MIG-a"]),
            (Some("NoDevFiles"), vec![]),
        ] {
            let inherited = InheritedVisibility {
                cuda: list.map(str::to_owned),
                nvidia: None,
            };
            assert_eq!(ids(&inherited.visible(&machine())), expected, "{list:?}");
        }
    }

    #[test]
    fn of_the_container_only_uuids_and_none_count() {
        for (list, expected) in [
            ("all", vec!["0", "1", "MIG-a", "MIG-b"]),
            ("void", vec!["0", "1", "MIG-a", "MIG-b"]),
            ("5", vec!["0", "1", "MIG-a", "MIG-b"]),
            ("none", vec![]),
            ("GPU-11-x,MIG-a", vec!["1", "MIG-a"]),
        ] {
            let inherited = InheritedVisibility {
                cuda: None,
                nvidia: Some(list.to_owned()),
            };
            assert_eq!(ids(&inherited.visible(&machine())), expected, "{list}");
        }
    }
}
