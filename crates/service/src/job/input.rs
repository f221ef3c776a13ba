//! The input of a job. It is the largest part of a waiting job, so it can be dropped from memory
//! and read again from the store.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use serde_json::Value;

use super::{Inner, Job};

/// Shown in place of an input that is not in memory.
const NO_INPUT: &[u8] = b"{}";

/// A reference to a job that does not keep it in memory.
pub(crate) struct WeakJob(Weak<Inner>);

impl WeakJob {
    /// A handle without the input, if the job is still in memory.
    pub(crate) fn upgrade(&self) -> Option<Job> {
        let inner = self.0.upgrade()?;
        Some(Job { input: None, inner })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl Job {
    /// The validated input if it is in memory. It contains secrets: use it to compare, not to show.
    pub(crate) fn input(&self) -> Option<&Bytes> {
        self.input.as_ref()
    }

    /// Whether the input was removed or is not in memory, so that it cannot be compared.
    pub(crate) fn is_without_data(&self) -> bool {
        self.inner.data_removed || self.input.is_none()
    }

    /// A handle to the same job with its input.
    pub(crate) fn with_input(&self, input: Bytes) -> Self {
        Self {
            input: Some(input),
            inner: Arc::clone(&self.inner),
        }
    }

    /// A handle to the same job without its input.
    pub(crate) fn without_input(&self) -> Self {
        Self {
            input: None,
            inner: Arc::clone(&self.inner),
        }
    }

    /// Whether both handles refer to the same job. Two jobs may have had the same id.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// A reference to the job that does not keep it in memory.
    pub(crate) fn downgrade(&self) -> WeakJob {
        WeakJob(Arc::downgrade(&self.inner))
    }

    pub(super) fn input_len(&self) -> usize {
        self.input.as_ref().map_or(0, Bytes::len)
    }

    pub(super) fn masked_input(&self) -> Bytes {
        let Some(input) = &self.input else {
            return Bytes::from_static(NO_INPUT);
        };
        if self.inner.secrets.is_empty() {
            return input.clone();
        }
        let Ok(Value::Object(mut input)) = serde_json::from_slice(input) else {
            return Bytes::from_static(NO_INPUT);
        };
        for name in &self.inner.secrets {
            input.insert(name.clone(), Value::from("**********"));
        }
        serde_json::to_vec(&input)
            .expect("a JSON object serializes")
            .into()
    }
}
