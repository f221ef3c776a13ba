//! The GPUs that the models of a server share.
//!
//! A model asks for GPUs with its [`GpuAssigner`]. Requests are answered in turn: one that can get memory by
//! unloading other models keeps its turn until it has it. It unloads the least recently used idle model on the
//! GPUs that it needs; after a while also busy ones, which finish their jobs first.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::gpu::{
    AllocatorMemory, EvictionScope, Gpu, GpuAssigner, GpuEvictor, GpuId, GpuLease, GpuRefusal,
    GpuReport, GpuSource,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ledger::{EntryId, EntryState, GpuPlacement, MemoryByGpu, PlacementRequest};
use crate::requirements::MeasuredRequirements;
use crate::tracking::{TrackedLedger, kind_of};

/// How often a request that waits looks at the memory again.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A model that is never idle is unloaded when another model has waited this long.
const EVICT_BUSY_AFTER: Duration = Duration::from_secs(10);
/// A request that has waited this long is logged, and again after each such time.
const LOG_WAIT_AFTER: Duration = Duration::from_secs(30);

/// The ledger of a server, which the thread of the driver updates. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct GpuLedger {
    tracked: Arc<Mutex<TrackedLedger>>,
    /// Wakes those who wait for a critical error of their GPU.
    errors: Arc<Notify>,
}

impl GpuLedger {
    /// A ledger that remembers what models need in `file`.
    pub fn open(file: Option<PathBuf>) -> Self {
        let requirements = MeasuredRequirements::open(file);
        Self {
            tracked: Arc::new(Mutex::new(TrackedLedger::new(requirements))),
            errors: Arc::default(),
        }
    }

    /// Takes over what the driver reports. Blocks.
    pub fn observe(&self, report: &GpuReport) {
        let mut tracked = self.lock();
        tracked.observe(report);
        let has_errors = tracked.record_errors(report);
        drop(tracked);
        if has_errors {
            self.errors.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, TrackedLedger> {
        self.tracked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The GPUs that the models of a server may use. Clones share them.
#[derive(Clone)]
pub struct GpuPool {
    inner: Arc<PoolInner>,
}

struct PoolInner {
    gpus: Vec<GpuId>,
    source: Arc<dyn GpuSource>,
    ledger: GpuLedger,
    evictor: OnceLock<Arc<dyn GpuEvictor>>,
    /// Held by the request that is answered now.
    turn: tokio::sync::Mutex<()>,
}

/// What a model asks the pool for.
#[derive(Debug, Clone)]
pub struct ModelGpuNeeds {
    /// The name of the model.
    pub model: String,
    /// The version of the model.
    pub version: String,
    /// The number of GPUs of each child.
    pub gpus_per_child: usize,
    /// The memory that each child needs on each of its GPUs, if the user says so.
    pub memory: Option<u64>,
    /// Whether the model can be unloaded for others.
    pub evictable: bool,
}

impl GpuPool {
    /// A pool of these GPUs. `ledger` must observe what `source` reports.
    pub fn new(gpus: &[Gpu], source: Arc<dyn GpuSource>, ledger: GpuLedger) -> Self {
        let inner = PoolInner {
            gpus: gpus.iter().map(|gpu| gpu.id.clone()).collect(),
            source,
            ledger,
            evictor: OnceLock::new(),
            turn: tokio::sync::Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The number of GPUs.
    pub fn size(&self) -> usize {
        self.inner.gpus.len()
    }

    /// Sets what unloads models. The first call counts.
    pub fn set_evictor(&self, evictor: Arc<dyn GpuEvictor>) {
        // A second evictor would unload the same models.
        self.inner.evictor.set(evictor).ok();
    }

    /// Gives GPUs to the children of a model.
    pub fn assigner(&self, needs: ModelGpuNeeds) -> Arc<dyn GpuAssigner> {
        Arc::new(PoolAssigner {
            inner: Arc::clone(&self.inner),
            needs,
        })
    }
}

impl PoolInner {
    /// The memory of the GPUs that are not cordoned.
    fn memory(&self, report: &GpuReport) -> MemoryByGpu {
        let memory = |id: &GpuId| report.find(id).and_then(|gpu| gpu.memory);
        self.gpus
            .iter()
            .filter(|id| report.cordoned_by(id).is_none())
            .map(|id| (id.clone(), memory(id)))
            .collect()
    }

    /// Why there are too few GPUs for a child, if they are cordoned.
    fn too_many_cordoned(&self, report: &GpuReport, gpus_per_child: usize) -> Option<String> {
        let is_cordoned = |id: &&GpuId| report.cordoned_by(id).is_some();
        let cordoned: Vec<&GpuId> = self.gpus.iter().filter(is_cordoned).collect();
        if cordoned.is_empty() || self.gpus.len() - cordoned.len() >= gpus_per_child {
            return None;
        }
        let errors = cordoned.iter().filter_map(|id| {
            let xid = report.cordoned_by(id)?;
            Some(format!("GPU {id} (Xid {xid})"))
        });
        let errors = errors.collect::<Vec<_>>().join(", ");
        Some(format!(
            "these GPUs had a critical error and get no more processes: {errors}; reset or replace them, then restart the server"
        ))
    }

    /// Ends a spare on these GPUs, if there is one. Its memory is returned later.
    fn revoke_spare(&self, gpus: &[GpuId]) -> bool {
        let is_revoked = self.ledger.lock().ledger.revoke_spare(gpus);
        if is_revoked {
            self.ledger.errors.notify_waiters();
        }
        is_revoked
    }

    /// Unloads a model for a request, if one can be unloaded.
    async fn unload(&self, gpus: &[GpuId], waited: Duration) -> bool {
        let Some(evictor) = self.evictor.get().filter(|_| !gpus.is_empty()) else {
            return false;
        };
        let scope = if waited < EVICT_BUSY_AFTER {
            EvictionScope::Idle
        } else {
            EvictionScope::Busy
        };
        evictor.unload_one(gpus, scope).await
    }
}

/// Gives the GPUs of a pool to one model.
struct PoolAssigner {
    inner: Arc<PoolInner>,
    needs: ModelGpuNeeds,
}

impl std::fmt::Debug for PoolAssigner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.needs.fmt(out)
    }
}

impl PoolAssigner {
    fn request(&self, children: usize, need: Option<u64>) -> PlacementRequest<'_> {
        PlacementRequest {
            model: &self.needs.model,
            children,
            gpus_per_child: self.needs.gpus_per_child,
            need,
            evictable: self.needs.evictable,
        }
    }

    /// What the model needs, as declared or measured. On different kinds of GPUs, the most that it needed on
    /// one; unknown if it has not run on one of them.
    fn need(&self, report: &GpuReport, ledger: &TrackedLedger) -> Option<u64> {
        let ModelGpuNeeds { model, version, .. } = &self.needs;
        let measured = |kind: &str| ledger.requirements.of_version(model, version, kind);
        let is_loaded = |model: &str| {
            ledger
                .ledger
                .entries()
                .any(|(_, entry)| entry.model == model)
        };
        self.known_need(report, measured).or_else(|| {
            // Another version is loaded, which the new one replaces and probably resembles.
            let other = |kind: &str| ledger.requirements.of_any_version(model, kind);
            self.known_need(report, other).filter(|_| is_loaded(model))
        })
    }

    fn known_need(&self, report: &GpuReport, of: impl Fn(&str) -> Option<u64>) -> Option<u64> {
        if self.needs.memory.is_some() {
            return self.needs.memory;
        }
        let gpus = self.inner.gpus.iter().filter_map(|id| report.find(id));
        let needs: Option<Vec<u64>> = gpus.map(|gpu| of(&kind_of(gpu))).collect();
        needs?.into_iter().max()
    }

    /// Reserves GPUs for all children, if that is possible now.
    fn try_assign(
        &self,
        children: usize,
        report: &GpuReport,
    ) -> Result<Vec<Arc<PoolLease>>, GpuPlacement> {
        if let Some(reason) = self
            .inner
            .too_many_cordoned(report, self.needs.gpus_per_child)
        {
            return Err(GpuPlacement::Impossible(reason));
        }
        let mut ledger = self.inner.ledger.lock();
        let need = self.need(report, &ledger);
        let request = self.request(children, need);
        match ledger.ledger.place(&self.inner.memory(report), &request) {
            GpuPlacement::Granted(granted) => {
                let ids = ledger.ledger.reserve(&request, granted.clone());
                let leases = ids.into_iter().zip(granted).map(|(id, gpus)| {
                    ledger.track(id, &self.needs.version);
                    let inner = Arc::clone(&self.inner);
                    let evictable = self.needs.evictable;
                    Arc::new(PoolLease {
                        inner,
                        id,
                        gpus,
                        evictable,
                    })
                });
                Ok(leases.collect())
            }
            refused @ (GpuPlacement::Blocked { .. } | GpuPlacement::Impossible(_)) => Err(refused),
        }
    }
}

#[async_trait]
impl GpuAssigner for PoolAssigner {
    async fn assign(&self, children: usize) -> Result<Vec<Arc<dyn GpuLease>>, GpuRefusal> {
        let started = Instant::now();
        let mut logged_at = started;
        loop {
            let turn = self.inner.turn.lock().await;
            let report = self.inner.source.refresh().await;
            let (unload_on, reason) = match self.try_assign(children, &report) {
                Ok(leases) => {
                    return Ok(leases
                        .into_iter()
                        .map(|lease| lease as Arc<dyn GpuLease>)
                        .collect());
                }
                Err(GpuPlacement::Blocked { unload_on, reason }) => (unload_on, reason),
                Err(GpuPlacement::Impossible(reason)) => return Err(GpuRefusal(reason)),
                Err(GpuPlacement::Granted(_)) => unreachable!("what is granted is reserved"),
            };
            if logged_at.elapsed() >= LOG_WAIT_AFTER {
                logged_at = Instant::now();
                tracing::warn!(model = self.needs.model, reason, "waiting for GPU memory");
            }
            if self.inner.revoke_spare(&unload_on)
                || self.inner.unload(&unload_on, started.elapsed()).await
            {
                continue;
            }
            if unload_on.is_empty() {
                // Only time helps; meanwhile other requests may fit, for example on another GPU.
                drop(turn);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn assign_spare(&self) -> Result<Arc<dyn GpuLease>, GpuRefusal> {
        let report = self.inner.source.refresh().await;
        let lease = self.try_assign(1, &report).ok().and_then(|mut leases| {
            let lease = leases.pop()?;
            let mut ledger = self.inner.ledger.lock();
            if let Some(entry) = ledger.ledger.get_mut(lease.id) {
                entry.is_spare = true;
                entry.evictable = true;
            }
            Some(lease)
        });
        let lease = lease
            .ok_or_else(|| GpuRefusal("no GPU has enough free memory for a spare".to_owned()))?;
        Ok(lease)
    }

    fn fits(&self, children: usize) -> bool {
        let report = self.inner.source.report();
        let ledger = self.inner.ledger.lock();
        let need = self.need(&report, &ledger);
        let request = self.request(children, need);
        let placement = ledger.ledger.place(&self.inner.memory(&report), &request);
        matches!(placement, GpuPlacement::Granted(_))
    }
}

/// The GPUs of one child.
struct PoolLease {
    inner: Arc<PoolInner>,
    id: EntryId,
    gpus: Vec<GpuId>,
    /// Whether the model can be unloaded.
    evictable: bool,
}

impl std::fmt::Debug for PoolLease {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(&self.gpus).finish()
    }
}

#[async_trait]
impl GpuLease for PoolLease {
    fn gpus(&self) -> &[GpuId] {
        &self.gpus
    }

    async fn memory_returned(&self) {
        let report = self.inner.source.report();
        {
            let mut ledger = self.inner.ledger.lock();
            if !ledger.was_started(self.id) {
                return;
            }
            ledger.exited(self.id, &report);
        }
        loop {
            let report = self.inner.source.refresh().await;
            if self.inner.ledger.lock().is_returned(self.id, &report) {
                return;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn started(&self, pid: u32) {
        let report = self.inner.source.report();
        self.inner.ledger.lock().started(self.id, pid, &report);
    }

    fn ready(&self) {
        self.inner.ledger.lock().ready(self.id);
    }

    fn allocated(&self, memory: AllocatorMemory) {
        self.inner.ledger.lock().allocated(self.id, memory);
    }

    fn taken_by_child(&self) {
        let mut ledger = self.inner.ledger.lock();
        if let Some(entry) = ledger
            .ledger
            .get_mut(self.id)
            .filter(|entry| entry.is_spare)
        {
            entry.is_spare = false;
            entry.evictable = self.evictable;
            entry.state = EntryState::Ready;
        }
    }

    async fn failed(&self) -> String {
        loop {
            // Before the look: an error that is recorded after it wakes this one.
            let changed = self.inner.ledger.errors.notified();
            if let Some(error) = self.inner.ledger.lock().error_of(self.id) {
                return error;
            }
            changed.await;
        }
    }

    fn is_cordoned(&self) -> bool {
        let report = self.inner.source.report();
        self.gpus.iter().any(|id| report.cordoned_by(id).is_some())
    }
}

impl Drop for PoolLease {
    fn drop(&mut self) {
        let report = self.inner.source.report();
        self.inner.ledger.lock().release(self.id, &report);
    }
}
