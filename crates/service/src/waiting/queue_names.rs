//! The names of the queues of the job services.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tidegate_core::JobKind;
use tidegate_core::queue::QueueName;
use tidegate_core::record::Target;

/// The names that are in use.
#[derive(Default)]
pub(crate) struct QueueNames {
    in_use: Mutex<Vec<Weak<str>>>,
    last: AtomicU64,
}

impl QueueNames {
    /// The name of the queue of a new service. No other service of this process has it: a version that is
    /// served again while its old service drains, or an endpoint that is created again under its old name,
    /// gets a queue of its own.
    pub(crate) fn of(&self, target: &Target, is_shared: bool) -> QueueName {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        if !is_shared {
            return QueueName::new(&format!("{}:{}#{number}", target.model, target.version));
        }
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|name| name.strong_count() > 0);
        let name = QueueName::of(JobKind::Prediction, target);
        let is_taken = |name: &QueueName| {
            let mut names = in_use.iter().filter_map(Weak::upgrade);
            names.any(|other| *other == *name.as_str())
        };
        // What the next process finds in such a queue, it pushes to the queue with the plain name.
        let name = if is_taken(&name) {
            let other = Target {
                version: format!("{}#{number}", target.version),
                ..target.clone()
            };
            QueueName::of(JobKind::Prediction, &other)
        } else {
            name
        };
        in_use.push(Arc::downgrade(&name.to_shared()));
        name
    }
}
