//! The GPUs that the models of a server share.
//!
//! A model asks for GPUs with its [`GpuAssigner`]. Requests are answered in turn: one that can get memory by
//! unloading other models keeps its turn until it has it. It unloads the least recently used idle model on the
//! GPUs that it needs; after a while also busy ones, which finish their jobs first. Before that, processes that
//! their models can do without are ended. Such a process gets only memory that no request waits for.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::gpu::{
    AllocatorMemory, ChildrenWanted, EvictionScope, Gpu, GpuAssigner, GpuEvictor, GpuId, GpuLease,
    GpuRefusal, GpuReport, GpuSource, GpuUser, LeaseEnd, ProcessRole,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ledger::{EntryId, GpuPlacement, MemoryByGpu, NeedByGpu, PlacementRequest};
use crate::requirements::MeasuredRequirements;
use crate::tracking::{TrackedLedger, kind_of};

/// How often a request that waits looks at the memory again.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A model that is never idle is unloaded when another model has waited this long, and models are unloaded
/// beside a process that was revoked and still runs jobs.
const EVICT_BUSY_AFTER: Duration = Duration::from_secs(10);
/// A request that has waited this long is logged, and again after each such time.
const LOG_WAIT_AFTER: Duration = Duration::from_secs(30);

/// The ledger of a server, which the thread of the driver updates. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct GpuLedger {
    tracked: Arc<Mutex<TrackedLedger>>,
    /// Wakes those who wait for the end of their lease.
    ends: Arc<Notify>,
}

impl GpuLedger {
    /// A ledger that remembers what models need in `file`.
    pub fn open(file: Option<PathBuf>) -> Self {
        let requirements = MeasuredRequirements::open(file);
        Self {
            tracked: Arc::new(Mutex::new(TrackedLedger::new(requirements))),
            ends: Arc::default(),
        }
    }

    /// Takes over what the driver reports. Blocks.
    pub fn observe(&self, report: &GpuReport) {
        let mut tracked = self.lock();
        tracked.observe(report);
        let has_errors = tracked.record_errors(report);
        drop(tracked);
        if has_errors {
            self.ends.notify_waiters();
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
    /// How many requests could not be granted at once.
    waiting: AtomicUsize,
    next_user: AtomicU64,
}

/// Counts a request that waits.
struct WaitingRequest<'a>(&'a AtomicUsize);

impl<'a> WaitingRequest<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
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
            waiting: AtomicUsize::new(0),
            next_user: AtomicU64::new(0),
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
            user: GpuUser(self.inner.next_user.fetch_add(1, Ordering::Relaxed)),
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

    /// Ends a process on these GPUs that is not needed, if there is one. Its memory is returned later.
    fn revoke_one(&self, gpus: &[GpuId]) -> bool {
        let is_revoked = self.ledger.lock().ledger.revoke_one(gpus);
        if is_revoked {
            self.ledger.ends.notify_waiters();
        }
        is_revoked
    }

    /// Unloads a model for a request, if one can be unloaded.
    async fn unload(&self, gpus: &[GpuId], waited: Duration, requester: GpuUser) -> bool {
        let Some(evictor) = self.evictor.get().filter(|_| !gpus.is_empty()) else {
            return false;
        };
        let scope = if waited < EVICT_BUSY_AFTER {
            EvictionScope::Idle
        } else {
            EvictionScope::Busy
        };
        evictor.unload_one(gpus, scope, requester).await
    }
}

/// Gives the GPUs of a pool to one model.
struct PoolAssigner {
    inner: Arc<PoolInner>,
    user: GpuUser,
    needs: ModelGpuNeeds,
}

/// A request of a model, before its need is known.
#[derive(Clone, Copy)]
struct Wanted {
    children: ChildrenWanted,
    role: ProcessRole,
    is_overdue: bool,
}

impl std::fmt::Debug for PoolAssigner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.needs.fmt(out)
    }
}

impl PoolAssigner {
    fn request(&self, wanted: Wanted, needs: NeedByGpu) -> PlacementRequest<'_> {
        PlacementRequest {
            user: self.user,
            model: &self.needs.model,
            children: wanted.children.more,
            beside: wanted.children.beside,
            gpus_per_child: self.needs.gpus_per_child,
            needs,
            evictable: self.needs.evictable,
            role: wanted.role,
            is_overdue: wanted.is_overdue,
        }
    }

    /// What a child needs on each GPU, as declared or measured on a GPU of its kind.
    fn needs(&self, report: &GpuReport, ledger: &TrackedLedger) -> NeedByGpu {
        let ModelGpuNeeds { model, version, .. } = &self.needs;
        // Another version is loaded, which the new one replaces and probably resembles.
        let is_loaded = ledger
            .ledger
            .entries()
            .any(|(_, entry)| entry.model == *model);
        let requirements = &ledger.requirements;
        let measured = |kind: &str| {
            let of_other = || {
                requirements
                    .of_any_version(model, kind)
                    .filter(|_| is_loaded)
            };
            requirements
                .of_version(model, version, kind)
                .or_else(of_other)
        };
        let need_on = |id: &GpuId| {
            let declared = self.needs.memory;
            declared.or_else(|| measured(&kind_of(report.find(id)?)))
        };
        let gpus = self.inner.gpus.iter();
        gpus.filter_map(|id| Some((id.clone(), need_on(id)?)))
            .collect()
    }

    /// Reserves GPUs for all children, if that is possible now.
    fn try_assign(
        &self,
        wanted: Wanted,
        report: &GpuReport,
    ) -> Result<Vec<Arc<dyn GpuLease>>, GpuPlacement> {
        if let Some(reason) = self
            .inner
            .too_many_cordoned(report, self.needs.gpus_per_child)
        {
            return Err(GpuPlacement::Impossible(reason));
        }
        let mut ledger = self.inner.ledger.lock();
        let needs = self.needs(report, &ledger);
        let request = self.request(wanted, needs);
        match ledger.ledger.place(&self.inner.memory(report), &request) {
            GpuPlacement::Granted(granted) => {
                let ids = ledger.ledger.reserve(&request, granted.clone());
                let leases = ids.into_iter().zip(granted).map(|(id, gpus)| {
                    ledger.track(id, &self.needs.version);
                    let inner = Arc::clone(&self.inner);
                    Arc::new(PoolLease { inner, id, gpus }) as Arc<dyn GpuLease>
                });
                Ok(leases.collect())
            }
            refused @ (GpuPlacement::Blocked { .. } | GpuPlacement::Impossible(_)) => Err(refused),
        }
    }
}

#[async_trait]
impl GpuAssigner for PoolAssigner {
    async fn assign(&self, children: ChildrenWanted) -> Result<Vec<Arc<dyn GpuLease>>, GpuRefusal> {
        let started = Instant::now();
        let mut logged_at = started;
        let mut waiting = None;
        loop {
            let turn = self.inner.turn.lock().await;
            let report = self.inner.source.refresh().await;
            let wanted = Wanted {
                children,
                role: ProcessRole::Needed,
                is_overdue: started.elapsed() >= EVICT_BUSY_AFTER,
            };
            let (unload_on, reason) = match self.try_assign(wanted, &report) {
                Ok(leases) => return Ok(leases),
                Err(GpuPlacement::Blocked { unload_on, reason }) => (unload_on, reason),
                Err(GpuPlacement::Impossible(reason)) => {
                    self.inner.ledger.lock().ledger.complete(self.user);
                    return Err(GpuRefusal(reason));
                }
                Err(GpuPlacement::Granted(_)) => unreachable!("what is granted is reserved"),
            };
            waiting.get_or_insert_with(|| WaitingRequest::new(&self.inner.waiting));
            if logged_at.elapsed() >= LOG_WAIT_AFTER {
                logged_at = Instant::now();
                tracing::warn!(model = self.needs.model, reason, "waiting for GPU memory");
            }
            let waited = started.elapsed();
            if self.inner.revoke_one(&unload_on)
                || self.inner.unload(&unload_on, waited, self.user).await
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

    async fn assign_if_free(&self, role: ProcessRole) -> Result<Arc<dyn GpuLease>, GpuRefusal> {
        let report = self.inner.source.refresh().await;
        if self.inner.waiting.load(Ordering::Relaxed) > 0 {
            return Err(GpuRefusal("other processes wait for GPU memory".to_owned()));
        }
        let wanted = Wanted {
            children: ChildrenWanted { more: 1, beside: 0 },
            role,
            is_overdue: false,
        };
        match self.try_assign(wanted, &report) {
            Ok(mut leases) => Ok(leases.pop().expect("one was asked for")),
            Err(GpuPlacement::Blocked { reason, .. } | GpuPlacement::Impossible(reason)) => {
                Err(GpuRefusal(reason))
            }
            Err(GpuPlacement::Granted(_)) => unreachable!("what is granted is reserved"),
        }
    }

    fn user(&self) -> GpuUser {
        self.user
    }

    fn fits(&self, children: usize) -> bool {
        let report = self.inner.source.report();
        let ledger = self.inner.ledger.lock();
        let needs = self.needs(&report, &ledger);
        let wanted = Wanted {
            children: ChildrenWanted {
                more: children,
                beside: 0,
            },
            role: ProcessRole::Needed,
            is_overdue: false,
        };
        let request = self.request(wanted, needs);
        let placement = ledger.ledger.place(&self.inner.memory(&report), &request);
        matches!(placement, GpuPlacement::Granted(_))
    }
}

/// The GPUs of one child.
struct PoolLease {
    inner: Arc<PoolInner>,
    id: EntryId,
    gpus: Vec<GpuId>,
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

    fn set_role(&self, role: ProcessRole) {
        let mut ledger = self.inner.ledger.lock();
        if let Some(entry) = ledger.ledger.get_mut(self.id) {
            entry.set_role(role);
        }
    }

    async fn ended(&self) -> LeaseEnd {
        loop {
            // Before the look: an end that is recorded after it wakes this one.
            let changed = self.inner.ledger.ends.notified();
            if let Some(end) = self.inner.ledger.lock().end_of(self.id) {
                return end;
            }
            changed.await;
        }
    }

    fn has_ended(&self) -> bool {
        let report = self.inner.source.report();
        let is_cordoned = |id: &GpuId| report.cordoned_by(id).is_some();
        let end = self.inner.ledger.lock().end_of(self.id);
        self.gpus.iter().any(is_cordoned) || end == Some(LeaseEnd::Revoked)
    }
}

impl Drop for PoolLease {
    fn drop(&mut self) {
        let report = self.inner.source.report();
        self.inner.ledger.lock().release(self.id, &report);
    }
}
