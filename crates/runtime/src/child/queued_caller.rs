//! A caller that waits in the pool's queue for a permit.

use std::sync::Mutex;

use tidegate_core::Account;
use tokio::sync::oneshot;

use super::pool_slot::{PoolSlot, SlotPermit};
use crate::slots::{HasOwner, PoolState, Waiter};

/// A caller that waits for a permit.
pub(crate) struct QueuedCaller {
    pub(crate) account: Account,
    /// The position in the queue of the account; see [`HasOwner::order`].
    pub(crate) sequence: u64,
    pub(crate) permit: oneshot::Sender<SlotPermit>,
}

impl HasOwner for QueuedCaller {
    type Owner = Account;

    fn owner(&self) -> &Account {
        &self.account
    }

    fn order(&self) -> u64 {
        self.sequence
    }
}

impl Waiter<PoolSlot, Mutex<PoolState<PoolSlot, QueuedCaller>>> for QueuedCaller {
    fn grant(self, permit: SlotPermit) -> Result<(), SlotPermit> {
        self.permit.send(permit)
    }

    fn is_gone(&self) -> bool {
        self.permit.is_closed()
    }
}
