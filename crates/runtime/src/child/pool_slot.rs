//! What the pool of a model grants: the socket of a slot, or a place in the batches of a child.

use std::sync::{Arc, Mutex};

use super::process::ChildProcess;
use super::queued_caller::QueuedCaller;
use super::slot_socket::SlotSocket;
use crate::slots::{Permit, PoolState};

/// A permit for one slot of a child.
pub(crate) type SlotPermit =
    Permit<PoolSlot, QueuedCaller, Mutex<PoolState<PoolSlot, QueuedCaller>>>;

/// One slot in the pool of a model.
pub(crate) enum PoolSlot {
    /// The socket that runs one job after the other.
    Socket(SlotSocket),
    /// A place for one job in the batches of the model. It counts the capacity of this child; the
    /// batch of the job may run on another child.
    BatchPlace(Arc<ChildProcess>),
}

impl PoolSlot {
    /// The child that provides the slot.
    pub(crate) fn child(&self) -> &Arc<ChildProcess> {
        match self {
            Self::Socket(socket) => &socket.child,
            Self::BatchPlace(child) => child,
        }
    }
}

/// A permit by the kind of its slot.
pub(crate) enum KindOfPermit {
    /// For a socket.
    Socket(SocketPermit),
    /// For a place in a batch.
    BatchPlace(SlotPermit),
}

impl From<SlotPermit> for KindOfPermit {
    fn from(mut permit: SlotPermit) -> Self {
        match permit.slot() {
            PoolSlot::Socket(_) => Self::Socket(SocketPermit(permit)),
            PoolSlot::BatchPlace(_) => Self::BatchPlace(permit),
        }
    }
}

/// A permit whose slot is a socket.
pub(crate) struct SocketPermit(SlotPermit);

impl SocketPermit {
    pub(crate) fn socket(&mut self) -> &mut SlotSocket {
        match self.0.slot() {
            PoolSlot::Socket(socket) => socket,
            PoolSlot::BatchPlace(_) => unreachable!("a socket permit is made of a socket"),
        }
    }

    /// Removes the slot from the pool for good.
    pub(crate) fn poison(self) {
        self.0.poison();
    }
}
