//! The GPUs of a model's children.
//!
//! The first child that starts reserves GPUs for all of them, so that two models never hold half of what each
//! of them needs. If that is not known, some children are set up first. A child keeps its GPUs when its process
//! is replaced, unless its lease has ended.
//!
//! As many children as the model has at least are needed: they wait for GPUs, and others give way to them.
//! Those that were added because of the load get what is free, or none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use tidegate_core::gpu::{
    ChildrenWanted, GpuAssigner, GpuLease, GpuRefusal, GpuUser, LeaseEnd, ProcessRole,
};
use tokio::sync::Mutex;

/// Hands out the GPUs of a model.
pub(crate) struct ChildGpus {
    /// `None`: the children see the GPUs that the server sees.
    assigner: Option<Arc<dyn GpuAssigner>>,
    /// How many children are needed.
    children: usize,
    /// Those of the first children, until they are taken.
    first: Mutex<FirstLeases>,
    /// Whether some of the first children wait for GPUs, although others have theirs.
    is_partial: AtomicBool,
    /// Those of the children, by their number.
    held: std::sync::Mutex<BTreeMap<usize, Weak<dyn GpuLease>>>,
}

/// The GPUs of the first children.
struct FirstLeases {
    /// Those that no child has taken yet.
    left: BTreeMap<usize, Arc<dyn GpuLease>>,
    /// How many children have none reserved.
    missing: usize,
}

impl ChildGpus {
    pub(crate) fn new(assigner: Option<Arc<dyn GpuAssigner>>, children: usize) -> Self {
        Self {
            assigner,
            children,
            first: Mutex::new(FirstLeases {
                left: BTreeMap::new(),
                missing: children,
            }),
            is_partial: AtomicBool::new(false),
            held: std::sync::Mutex::default(),
        }
    }

    /// The GPUs of child `number`; `None` if the model is given none. Waits for them if the child is needed.
    pub(crate) async fn acquire(
        &self,
        number: usize,
    ) -> Result<Option<Arc<dyn GpuLease>>, GpuRefusal> {
        let Some(assigner) = &self.assigner else {
            return Ok(None);
        };
        let mut first = self.first.lock().await;
        if first.left.is_empty() && first.missing > 0 {
            let beside = self.children - first.missing;
            let more = first.missing;
            let leases = assigner.assign(ChildrenWanted { more, beside }).await?;
            first.missing -= leases.len();
            first.left.extend((beside..).zip(leases));
            self.is_partial.store(first.missing > 0, Ordering::Relaxed);
        }
        // Any rather than none: the next ones are granted when the children that have these are set up.
        let any = first.left.keys().next().copied();
        let own = first.left.remove(&number);
        if let Some(lease) = own.or_else(|| first.left.remove(&any?)) {
            return Ok(Some(lease));
        }
        drop(first);
        if self.is_additional(number) {
            let role = ProcessRole::Additional;
            return assigner.assign_if_free(role).await.map(Some);
        }
        let one = ChildrenWanted { more: 1, beside: 0 };
        Ok(assigner.assign(one).await?.pop())
    }

    /// Whether some of the first children wait for GPUs, although others have theirs.
    pub(crate) fn is_partial(&self) -> bool {
        self.is_partial.load(Ordering::Relaxed)
    }

    /// The GPUs of a spare that is set up, if there is memory for it beside everything that is loaded: a
    /// spare unloads no model.
    pub(crate) async fn acquire_spare(&self) -> Result<Option<Arc<dyn GpuLease>>, GpuRefusal> {
        let Some(assigner) = &self.assigner else {
            return Ok(None);
        };
        let role = ProcessRole::Spare;
        assigner.assign_if_free(role).await.map(Some)
    }

    /// Whether enough other children have GPUs.
    pub(crate) fn is_additional(&self, number: usize) -> bool {
        let held = self.held();
        let others = held.iter().filter(|(other, _)| **other != number);
        others.filter(|(_, lease)| lease.strong_count() > 0).count() >= self.children
    }

    /// Child `number` has these GPUs from now on.
    pub(crate) fn assigned(&self, number: usize, lease: &Arc<dyn GpuLease>) {
        let mut held = self.held();
        held.insert(number, Arc::downgrade(lease));
        self.set_roles(&held);
    }

    /// Child `number` gets no more jobs and is not replaced.
    pub(crate) fn removed(&self, number: usize) {
        let mut held = self.held();
        held.remove(&number);
        self.set_roles(&held);
    }

    fn set_roles(&self, held: &BTreeMap<usize, Weak<dyn GpuLease>>) {
        let leases = held.values().filter_map(Weak::upgrade);
        for (place, lease) in leases.enumerate() {
            lease.set_role(if place < self.children {
                ProcessRole::Needed
            } else {
                ProcessRole::Additional
            });
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<usize, Weak<dyn GpuLease>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom the GPUs are for.
    pub(crate) fn user(&self) -> Option<GpuUser> {
        self.assigner.as_ref().map(|assigner| assigner.user())
    }

    /// Gives back what no child has taken.
    pub(crate) async fn close(&self) {
        *self.first.lock().await = FirstLeases {
            left: BTreeMap::new(),
            missing: 0,
        };
    }
}

/// Waits until a process has to give its GPUs back, and returns why; forever if it was given none.
pub(crate) async fn ended(lease: Option<&Arc<dyn GpuLease>>) -> LeaseEnd {
    match lease {
        Some(lease) => lease.ended().await,
        None => std::future::pending().await,
    }
}
