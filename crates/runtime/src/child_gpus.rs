//! The GPUs of a model's children.
//!
//! The first child that starts reserves GPUs for all of them, so that two models never hold half of what each
//! of them needs. A child keeps its GPUs when its process is replaced, unless one of them is cordoned.

use std::sync::Arc;

use tidegate_core::gpu::{GpuAssigner, GpuLease, GpuRefusal};
use tokio::sync::Mutex;

/// Hands out the GPUs of a model.
pub(crate) struct ChildGpus {
    /// `None`: the children see the GPUs that the server sees.
    assigner: Option<Arc<dyn GpuAssigner>>,
    children: usize,
    /// Those of the first children, until they are taken. `None` until they are reserved.
    first: Mutex<Option<FirstLeases>>,
}

/// The GPUs of each of the first children that has not taken them yet.
type FirstLeases = Vec<Option<Arc<dyn GpuLease>>>;

impl ChildGpus {
    pub(crate) fn new(assigner: Option<Arc<dyn GpuAssigner>>, children: usize) -> Self {
        Self {
            assigner,
            children,
            first: Mutex::default(),
        }
    }

    /// Waits for the GPUs of child `number`; `None` if the model is given none.
    pub(crate) async fn acquire(
        &self,
        number: usize,
    ) -> Result<Option<Arc<dyn GpuLease>>, GpuRefusal> {
        let Some(assigner) = &self.assigner else {
            return Ok(None);
        };
        let mut first = self.first.lock().await;
        if first.is_none() {
            let leases = assigner.assign(self.children).await?;
            *first = Some(leases.into_iter().map(Some).collect());
        }
        let own = first.iter_mut().flatten().nth(number);
        if let Some(lease) = own.and_then(Option::take) {
            return Ok(Some(lease));
        }
        drop(first);
        Ok(assigner.assign(1).await?.pop())
    }

    /// The GPUs of a spare that is set up, if there is memory for it beside everything that is loaded: a
    /// spare unloads no model.
    pub(crate) async fn acquire_spare(&self) -> Result<Option<Arc<dyn GpuLease>>, GpuRefusal> {
        let Some(assigner) = &self.assigner else {
            return Ok(None);
        };
        assigner.assign_spare().await.map(Some)
    }

    /// Gives back what no child has taken.
    pub(crate) async fn close(&self) {
        *self.first.lock().await = Some(Vec::new());
    }
}

/// Waits until a process can no longer use its GPUs, and returns why; forever if it was given none.
pub(crate) async fn failed(lease: Option<&Arc<dyn GpuLease>>) -> String {
    match lease {
        Some(lease) => lease.failed().await,
        None => std::future::pending().await,
    }
}
