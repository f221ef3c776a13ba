//! Who runs the jobs of a version that was replaced before it could.

use std::sync::{Arc, OnceLock};

use tidegate_core::port::Executor;

use crate::job_service::JobService;

/// What has come after the version of a desk. Cloning gives another handle to the same.
#[derive(Clone, Default)]
pub(crate) struct Succession {
    next: Arc<OnceLock<Option<JobService>>>,
}

impl Succession {
    /// Another version has taken the place, or nobody has. A version is replaced once.
    pub(crate) fn pass_to(&self, next: Option<JobService>) {
        self.next.set(next).ok();
    }

    /// Who runs jobs now that `own` was to run; `None` when the model is not offered any more.
    pub(crate) fn executor(&self, own: &Arc<dyn Executor>) -> Option<Arc<dyn Executor>> {
        let mut next = self.next.get();
        let mut now = own;
        while let Some(service) = next {
            let service = service.as_ref()?;
            now = &service.model.executor;
            next = service.model.succession.next.get();
        }
        Some(Arc::clone(now))
    }
}
