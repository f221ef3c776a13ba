//! Reads the GPUs from NVML. Its calls can block for as long as the driver hangs, so only the threads of
//! this crate call it.

use std::sync::Arc;

use jiff::Timestamp;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{MemoryInfo, ProcessInfo};
use nvml_wrapper::{Device, Nvml};
use tidegate_core::gpu::{Gpu, GpuId, GpuKind, GpuMemory, GpuProcess, GpuReport, XidErrors};

use crate::xid_watch::XidCounts;

/// The MIG mode of a card that is divided.
const MIG_ENABLED: u32 = 1;

/// The library, initialized.
pub(crate) struct Driver {
    pub(crate) nvml: Arc<Nvml>,
    pub(crate) xids: XidCounts,
    pub(crate) pids_match: bool,
}

/// Why there are no GPUs.
pub(crate) enum OpenError {
    /// The library is not installed.
    NotInstalled,
    /// The library is installed and does not work.
    Failed(String),
}

impl Driver {
    /// Loads the library.
    pub(crate) fn open(pids_match: bool) -> Result<Self, OpenError> {
        let nvml = Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) => OpenError::NotInstalled,
            other => OpenError::Failed(other.to_string()),
        })?;
        Ok(Self {
            nvml: Arc::new(nvml),
            xids: XidCounts::default(),
            pids_match,
        })
    }

    /// The state of all GPUs now.
    pub(crate) fn read(&self) -> GpuReport {
        let mut report = GpuReport {
            at: Some(Timestamp::now()),
            driver: self.nvml.sys_driver_version().ok(),
            gpus: Vec::new(),
            pids_match: self.pids_match,
            problem: None,
        };
        match self.cards() {
            Ok(cards) => {
                for (index, card) in (0..).zip(&cards) {
                    self.push_card(&mut report.gpus, index, card);
                }
            }
            Err(error) => report.problem = Some(error.to_string()),
        }
        report
    }

    /// The cards in PCI order, as CUDA numbers them with `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    fn cards(&self) -> Result<Vec<Device<'_>>, NvmlError> {
        let count = self.nvml.device_count()?;
        let mut cards: Vec<(Option<String>, Device<'_>)> = Vec::new();
        for index in 0..count {
            match self.nvml.device_by_index(index) {
                Ok(device) => {
                    let bus = device.pci_info().ok().map(|pci| pci.bus_id.to_lowercase());
                    cards.push((bus, device));
                }
                // CUDA does not see such a card either.
                Err(NvmlError::NoPermission) => {}
                Err(error) => return Err(error),
            }
        }
        // NVML's own order is the same, where a card has no address.
        if cards.iter().all(|(bus, _)| bus.is_some()) {
            cards.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        Ok(cards.into_iter().map(|(_, device)| device).collect())
    }

    /// Adds a card and, if it is divided, its parts.
    fn push_card(&self, gpus: &mut Vec<Gpu>, index: u32, card: &Device<'_>) {
        let is_divided = card
            .mig_mode()
            .is_ok_and(|mode| mode.current == MIG_ENABLED);
        let kind = if is_divided {
            GpuKind::Divided
        } else {
            GpuKind::Card
        };
        let whole = self.describe(index, kind, GpuId::card(index), card);
        let temperature = whole.temperature;
        // The driver counts errors by card. Which part one of a process was on is unknown.
        let xids = XidErrors {
            cordoned_by: whole.xids.cordoned_by,
            ..XidErrors::default()
        };
        gpus.push(whole);
        if !is_divided {
            return;
        }
        // The places of a card have gaps.
        let places = 0..card.mig_device_count().unwrap_or_default();
        let parts = places.filter_map(|place| card.mig_device_by_index(place).ok());
        for part in parts {
            if let Ok(uuid) = part.uuid() {
                let id = GpuId::mig(&uuid);
                gpus.push(Gpu {
                    temperature,
                    xids,
                    ..self.describe(index, GpuKind::MigDevice, id, &part)
                });
            }
        }
    }

    fn describe(&self, index: u32, kind: GpuKind, id: GpuId, device: &Device<'_>) -> Gpu {
        let uuid = device.uuid().unwrap_or_default();
        Gpu {
            id,
            index,
            kind,
            name: device.name().ok(),
            memory: device.memory_info().ok().and_then(memory),
            utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
            temperature: device.temperature(TemperatureSensor::Gpu).ok(),
            processes: device
                .running_compute_processes()
                .ok()
                .map(|processes| processes.iter().map(process).collect()),
            xids: self.xids.of(&uuid),
            uuid,
        }
    }
}

/// Cards whose memory is that of the system report none.
fn memory(info: MemoryInfo) -> Option<GpuMemory> {
    (info.total > 0).then_some(GpuMemory {
        total: info.total,
        free: info.free,
        used: info.used,
    })
}

fn process(info: &ProcessInfo) -> GpuProcess {
    GpuProcess {
        pid: info.pid,
        memory: match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    }
}
