//! Dynamic batching: several jobs of a model in one call of its `predict_batch`.
//!
//! A job of a model that batches gets a place instead of a slot of its own. [`item`] hands it to the
//! model's [`batcher`], where it waits with others. Each child has one task ([`child_loop`]), which
//! takes the next batch when the child is free or the batch is full, sends it as one message
//! ([`sent_batch`]) and distributes the answers. [`former`] decides which items form a batch and how
//! long they wait. A child runs one batch while the next one forms, so it provides places for two.

mod batcher;
mod child_loop;
mod former;
mod item;
mod sent_batch;

pub(crate) use batcher::Batcher;
pub(crate) use child_loop::run_batches;
pub(crate) use item::BatchAdmission;
use tidegate_ipc::control::{BatchLimits, Ready};

/// The number of jobs that a child can take at a time.
pub(crate) fn capacity_of(ready: &Ready) -> usize {
    ready.batch.map_or(ready.slots.len(), places)
}

/// One message that the child works on, and one batch that forms.
fn places(limits: BatchLimits) -> usize {
    (limits.max_message + limits.max_size) as usize
}
