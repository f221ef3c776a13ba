//! Counts the critical errors (Xids) of the GPUs, in a thread of its own: NVML waits for events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::struct_wrappers::event::EventData;
use tidegate_core::gpu::XidErrors;

/// The longest wait for one event.
const WAIT_MS: u32 = 1000;
/// The pause after an error of the event interface.
const ERROR_PAUSE: Duration = Duration::from_secs(5);
/// The code of an event whose error the driver does not know.
const UNKNOWN_XID: u64 = 999;

/// The critical errors of each GPU, by UUID. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct XidCounts(Arc<Mutex<HashMap<String, XidErrors>>>);

impl XidCounts {
    pub(crate) fn of(&self, uuid: &str) -> XidErrors {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(uuid).copied().unwrap_or_default()
    }

    fn add(&self, uuid: String, xid: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.entry(uuid).or_default().add(xid);
    }
}

/// Starts the thread. Without support of the driver, the counts stay zero.
pub(crate) fn start(nvml: Arc<Nvml>, counts: XidCounts) {
    let watch = move || match event_set(&nvml) {
        Ok(Some(set)) => count_events(&set, &counts),
        Ok(None) => tracing::debug!("no GPU reports critical errors"),
        Err(error) => tracing::debug!(%error, "failed to register for critical errors of GPUs"),
    };
    // The thread lives as long as the process; without it only the counts are missing.
    let thread = std::thread::Builder::new().name("nvml-events".to_owned());
    if let Err(error) = thread.spawn(watch) {
        tracing::warn!(%error, "failed to start the thread that counts critical errors of GPUs");
    }
}

/// The events of all GPUs that report critical errors; `None` if there are none.
fn event_set(nvml: &Nvml) -> Result<Option<EventSet<'_>>, NvmlError> {
    let mut set = nvml.create_event_set()?;
    let mut is_empty = true;
    for index in 0..nvml.device_count()? {
        let device = nvml.device_by_index(index)?;
        let supported = device.supported_event_types()?;
        if supported.contains(EventTypes::CRITICAL_XID_ERROR) {
            set = device
                .register_events(EventTypes::CRITICAL_XID_ERROR, set)
                .map_err(|error| error.error)?;
            is_empty = false;
        }
    }
    Ok((!is_empty).then_some(set))
}

fn count_events(set: &EventSet<'_>, counts: &XidCounts) {
    loop {
        match set.wait(WAIT_MS) {
            Ok(event) => count(&event, counts),
            Err(NvmlError::Timeout) => {}
            Err(error) => {
                tracing::debug!(%error, "failed to wait for critical errors of GPUs, retrying");
                std::thread::sleep(ERROR_PAUSE);
            }
        }
    }
}

fn count(event: &EventData<'_>, counts: &XidCounts) {
    let xid = match event.event_data {
        Some(XidError::Value(xid)) => xid,
        Some(XidError::Unknown) => UNKNOWN_XID,
        None => return,
    };
    match event.device.uuid() {
        Ok(uuid) => {
            tracing::error!(gpu = uuid, xid, "critical error of a GPU");
            counts.add(uuid, xid);
        }
        Err(error) => tracing::error!(%error, xid, "critical error of an unknown GPU"),
    }
}
