//! A caller that waits in the pool's queue for a permit.

use std::sync::Mutex;

use tidegate_core::Account;
use tokio::sync::oneshot;

use super::slot_socket::SlotSocket;
use crate::slots::{HasOwner, Permit, PoolState, Waiter};

/// A permit for one slot of a child.
pub(crate) type SlotPermit =
    Permit<SlotSocket, QueuedCaller, Mutex<PoolState<SlotSocket, QueuedCaller>>>;

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

impl Waiter<SlotSocket, Mutex<PoolState<SlotSocket, QueuedCaller>>> for QueuedCaller {
    fn grant(self, permit: SlotPermit) -> Result<(), SlotPermit> {
        self.permit.send(permit)
    }

    fn is_gone(&self) -> bool {
        self.permit.is_closed()
    }
}
