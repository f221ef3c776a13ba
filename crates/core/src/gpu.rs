//! GPUs as the driver reports them, and the ports through which models get them.
//!
//! Everything that the driver may not know is an `Option`: `None` means unknown, never zero.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

/// All GPUs of the machine at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuReport {
    /// When the driver was asked; `None` if it never answered.
    pub at: Option<Timestamp>,
    /// The version of the driver.
    pub driver: Option<String>,
    /// The GPUs in PCI order. A card that is divided by MIG is followed by its parts.
    pub gpus: Vec<Gpu>,
    /// Whether the process ids of the driver are those of this process's namespace. In a container they
    /// may be those of the host.
    pub pids_match: bool,
    /// Why the driver cannot be asked, although its library is installed.
    pub problem: Option<String>,
}

impl GpuReport {
    /// The GPUs that a process can use: cards that are not divided by MIG, and the parts of the others.
    pub fn usable(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(|gpu| gpu.kind != GpuKind::Divided)
    }

    /// The GPU with this id.
    pub fn find(&self, id: &GpuId) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.id == *id)
    }

    /// The critical error that cordons the GPU with this id, if there is one.
    pub fn cordoned_by(&self, id: &GpuId) -> Option<u64> {
        self.find(id)?.xids.cordoned_by
    }
}

/// What `CUDA_VISIBLE_DEVICES` calls a GPU: the index of a card in PCI order, or the UUID of a MIG device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GpuId(Arc<str>);

impl GpuId {
    /// A card, by its index in PCI order.
    pub fn card(index: u32) -> Self {
        Self(index.to_string().into())
    }

    /// A MIG device, by its UUID.
    pub fn mig(uuid: &str) -> Self {
        Self(uuid.into())
    }

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Ord for GpuId {
    /// Cards by their index, then MIG devices.
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |id: &Self| id.0.parse().unwrap_or(u32::MAX);
        key(self).cmp(&key(other)).then(self.0.cmp(&other.0))
    }
}

impl PartialOrd for GpuId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for GpuId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// One GPU, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// How processes select it.
    pub id: GpuId,
    /// The index of the card in PCI order.
    pub index: u32,
    /// What it is.
    pub kind: GpuKind,
    /// The unique id that the driver gives it.
    pub uuid: String,
    /// The name of the product.
    pub name: Option<String>,
    /// Its memory.
    pub memory: Option<GpuMemory>,
    /// The percentage of the last sampling period in which it was busy.
    pub utilization: Option<u32>,
    /// Its temperature in degrees Celsius.
    pub temperature: Option<u32>,
    /// The processes that compute on it; `None` if the driver does not say.
    pub processes: Option<Vec<GpuProcess>>,
    /// The critical errors since the start of this process.
    pub xids: XidErrors,
}

/// What an entry of a report is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuKind {
    /// A whole card.
    Card,
    /// A card that is divided by MIG: processes use its parts.
    Divided,
    /// A part of a card, made by MIG.
    MigDevice,
}

/// The memory of a GPU in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuMemory {
    /// All of it.
    pub total: u64,
    /// What no process and not the driver uses.
    pub free: u64,
    /// What processes use.
    pub used: u64,
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuProcess {
    /// The process id, in the namespace that the driver uses.
    pub pid: u32,
    /// The memory that it holds on this GPU, in bytes.
    pub memory: Option<u64>,
}

/// The critical errors of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XidErrors {
    /// How many there were.
    pub count: u64,
    /// How many of them concern a process on the GPU, and not the GPU itself.
    pub of_processes: u64,
    /// The code of the last one.
    pub last: Option<u64>,
    /// The code of the first one that concerns the GPU itself. The GPU is cordoned: it gets no more processes.
    pub cordoned_by: Option<u64>,
}

/// The critical errors that a process causes: an exception of a kernel, a page fault of its memory, its own end
/// or that of its context. The GPU works on.
const XIDS_OF_PROCESSES: [u64; 5] = [13, 31, 43, 45, 68];

impl XidErrors {
    /// Counts an error.
    pub fn add(&mut self, xid: u64) {
        self.count += 1;
        self.last = Some(xid);
        if XIDS_OF_PROCESSES.contains(&xid) {
            self.of_processes += 1;
        } else {
            self.cordoned_by.get_or_insert(xid);
        }
    }
}

/// Reads the state of the GPUs.
#[async_trait]
pub trait GpuSource: Send + Sync {
    /// The last state that was read. Does not wait.
    fn report(&self) -> Arc<GpuReport>;

    /// A state that is read after the call, or the last one if the driver does not answer in time.
    async fn refresh(&self) -> Arc<GpuReport>;
}

/// The source of a process that does not ask for GPUs.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoGpus;

#[async_trait]
impl GpuSource for NoGpus {
    fn report(&self) -> Arc<GpuReport> {
        Arc::default()
    }

    async fn refresh(&self) -> Arc<GpuReport> {
        Arc::default()
    }
}

/// Gives GPUs to the children of one model.
#[async_trait]
pub trait GpuAssigner: fmt::Debug + Send + Sync {
    /// Waits until there are GPUs for the children, and reserves them all at once. If it is not known what the
    /// model needs, only for some of them, which do not share a GPU: the others are asked for again, and get
    /// theirs when the first ones are set up. Cancel-safe: a dropped future reserves nothing.
    async fn assign(&self, children: ChildrenWanted) -> Result<Vec<Arc<dyn GpuLease>>, GpuRefusal>;

    /// Reserves GPUs for a process that the model can do without, if it fits beside everything that is loaded
    /// now: it unloads no model. Its lease is revoked when a model needs the memory.
    async fn assign_if_free(&self, role: ProcessRole) -> Result<Arc<dyn GpuLease>, GpuRefusal>;

    /// Whom the GPUs are for.
    fn user(&self) -> GpuUser;

    /// Whether this many children probably fit beside everything that is loaded now.
    fn fits(&self, children: usize) -> bool;
}

/// One version of a model among those that share the GPUs of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuUser(pub u64);

/// Children of a model that need GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildrenWanted {
    /// How many.
    pub more: usize,
    /// How many children of the same load have GPUs and keep them.
    pub beside: usize,
}

/// What a process is for its model. When a model needs memory, the processes with the last role are ended first,
/// and those that are needed never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessRole {
    /// One of the children that a loaded model has.
    Needed,
    /// A child that was added because of the load.
    Additional,
    /// A process that waits to replace a child.
    Spare,
}

/// Why a process has to give its GPUs back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEnd {
    /// A critical error: the process can no longer use them.
    Failed(String),
    /// A model needs the memory, and the process is not needed.
    Revoked,
}

impl fmt::Display for LeaseEnd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => out.write_str(error),
            Self::Revoked => out.write_str("a model needs the GPU memory of the process"),
        }
    }
}

/// The right of one child, and of the children that replace it, to use GPUs. Dropping it gives them back.
#[async_trait]
pub trait GpuLease: fmt::Debug + Send + Sync {
    /// The GPUs; none if the child may not use any.
    fn gpus(&self) -> &[GpuId];

    /// Waits until the memory of the previous child is free. Called before each start of a child.
    async fn memory_returned(&self);

    /// The child was started.
    fn started(&self, pid: u32);

    /// The child is set up.
    fn ready(&self);

    /// What the allocator of the child's GPU library has reserved.
    fn allocated(&self, memory: AllocatorMemory);

    /// Changes what the process is for its model.
    fn set_role(&self, role: ProcessRole);

    /// Waits until the process has to give its GPUs back, and returns why.
    async fn ended(&self) -> LeaseEnd;

    /// Whether the next child needs another lease: a GPU is cordoned, or the lease was revoked.
    fn has_ended(&self) -> bool;
}

/// What the allocator of a process's GPU library has reserved on the GPU where it has reserved the most, in
/// bytes. The process holds more: its CUDA context, and what other libraries hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocatorMemory {
    /// Now.
    pub reserved: u64,
    /// At most, without jobs that ran out of memory.
    pub peak: u64,
}

/// Why a model gets no GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct GpuRefusal(pub String);

/// Unloads models so that others get their GPU memory.
#[async_trait]
pub trait GpuEvictor: Send + Sync {
    /// Unloads the least recently used of the models that use one of these GPUs, except the one that needs
    /// them, and waits until its children have exited. Returns whether there was one.
    async fn unload_one(&self, gpus: &[GpuId], which: EvictionScope, requester: GpuUser) -> bool;
}

/// Which models may be unloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionScope {
    /// Only those without jobs.
    Idle,
    /// Also those with jobs; they finish them first.
    Busy,
}

/// The environment variables that make exactly these GPUs visible to a child.
pub fn visible_devices(gpus: &[GpuId]) -> [(&'static str, String); 2] {
    let ids: Vec<&str> = gpus.iter().map(GpuId::as_str).collect();
    [
        // Otherwise CUDA numbers the fastest card first.
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
        ("CUDA_VISIBLE_DEVICES", ids.join(",")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_process_do_not_cordon_a_gpu() {
        let mut errors = XidErrors::default();
        for xid in [13, 31, 43, 45, 68] {
            errors.add(xid);
        }
        assert_eq!((errors.of_processes, errors.cordoned_by), (5, None));
        for xid in [79, 48] {
            errors.add(xid);
        }
        assert_eq!((errors.count, errors.of_processes), (7, 5));
        assert_eq!((errors.last, errors.cordoned_by), (Some(48), Some(79)));
    }

    #[test]
    fn cards_are_visible_by_index_and_mig_devices_by_uuid() {
        let [_, (_, cards)] = visible_devices(&[GpuId::card(2), GpuId::card(0)]);
        let [_, (_, mig)] = visible_devices(&[GpuId::mig("MIG-1")]);
        let [_, (_, none)] = visible_devices(&[]);
        assert_eq!((&*cards, &*mig, &*none), ("2,0", "MIG-1", ""));
    }
}
