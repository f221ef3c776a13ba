//! The input of a job, which is the large part of one that waits: it can be let go of, and had again from the store.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::Job;

/// What stands for an input that is not at hand.
const NO_INPUT: &[u8] = b"{}";

impl Job {
    /// The checked input, secrets included, if it is at hand: for comparing, not for showing.
    pub(crate) fn input(&self) -> Option<&Bytes> {
        self.input.as_ref()
    }

    /// Whether its input cannot be compared any more.
    pub(crate) fn is_without_data(&self) -> bool {
        self.live.data_removed || self.input.is_none()
    }

    /// The same job, without its input.
    pub(crate) fn without_input(&self) -> Self {
        Self {
            input: None,
            live: Arc::clone(&self.live),
        }
    }

    /// The same job, with its input.
    pub(crate) fn with_input(&self, input: Bytes) -> Self {
        Self {
            input: Some(input),
            live: Arc::clone(&self.live),
        }
    }

    /// Whether this is the same job, and not only one with the same id.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.live, &other.live)
    }

    pub(super) fn input_len(&self) -> usize {
        self.input.as_ref().map_or(0, Bytes::len)
    }

    pub(super) fn masked_input(&self) -> Bytes {
        let Some(input) = &self.input else {
            return Bytes::from_static(NO_INPUT);
        };
        if self.live.secrets.is_empty() {
            return input.clone();
        }
        let Ok(Value::Object(mut input)) = serde_json::from_slice(input) else {
            return Bytes::from_static(NO_INPUT);
        };
        for name in &self.live.secrets {
            input.insert(name.clone(), Value::from("**********"));
        }
        serde_json::to_vec(&input)
            .expect("it was JSON before")
            .into()
    }
}
