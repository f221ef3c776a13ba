//! The executor of jobs whose version was replaced before they started.

use std::sync::{Arc, OnceLock};

use tidegate_core::port::Executor;

use crate::job_service::JobService;

/// The successor of a served version, once it is replaced. Clones share the same state.
#[derive(Clone, Default)]
pub(crate) struct Succession {
    next: Arc<OnceLock<Option<JobService>>>,
}

impl Succession {
    /// Sets the version that replaces this one; `None` when the model is withdrawn. Only the first
    /// call has an effect.
    pub(crate) fn pass_to(&self, next: Option<JobService>) {
        self.next.set(next).ok();
    }

    /// The executor that now runs the jobs of `own`; `None` when the model is not served any more.
    pub(crate) fn executor(&self, own: &Arc<dyn Executor>) -> Option<Arc<dyn Executor>> {
        let mut next = self.next.get();
        let mut current = own;
        while let Some(service) = next {
            let service = service.as_ref()?;
            current = &service.model.executor;
            next = service.model.succession.next.get();
        }
        Some(Arc::clone(current))
    }
}
