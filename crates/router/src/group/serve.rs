//! Serves the waiters of a model: after a release, a change of health or a new configuration.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::Account;

use super::{Ask, EndpointGroup, Full, FullReason, GroupMember, QueueState};
use crate::choose::Choice;
use crate::fleet::QueueConfig;
use crate::permits::EndpointPermit;
use crate::queue::{QueuePlace, WaitEntry};

/// What serving the waiters has led to. It must be dropped after the lock of the queue is released: an
/// unused permit that is dropped serves the waiters again.
#[derive(Default)]
pub(super) struct Served {
    /// Whether a waiter got a permit.
    any: bool,
    /// Permits whose waiters had just left.
    unused: Vec<EndpointPermit>,
}

impl EndpointGroup {
    /// Gives free permits to waiters. Returns whether one got a permit.
    pub(crate) fn serve_waiters(self: &Arc<Self>) -> bool {
        let mut served = Served::default();
        let mut state = self.lock();
        self.serve(&mut state, &mut served);
        drop(state);
        served.any
    }

    /// Gives free permits to waiters and refuses those that no endpoint can serve any more.
    pub(crate) fn reconsider_waiters(self: &Arc<Self>) {
        let mut served = Served::default();
        let mut state = self.lock();
        self.serve(&mut state, &mut served);
        let hopeless = |entry: &WaitEntry| self.choose_for(&entry.ask) == Choice::NoEndpoint;
        let hopeless = state.queue.extract(hopeless);
        self.refuse_all(hopeless, &self.no_endpoint());
    }

    /// Applies a configuration. Waiters keep their places as far as the new queue has them.
    pub(crate) fn reconfigure(
        self: &Arc<Self>,
        config: &QueueConfig,
        members: Vec<Arc<GroupMember>>,
    ) {
        self.members.store(Arc::new(members));
        let mut state = self.lock();
        state.config = config.clone();
        if self.choose_for(&Ask::new(Account::ANONYMOUS)) == Choice::NoEndpoint {
            let all = state.queue.drain();
            self.refuse_all(all, &self.no_endpoint());
        }
        let capacity = self.capacity(config);
        let without_place = state.queue.reconfigure(config.algorithm, capacity);
        let full = self.full_behind(FullReason::Cleared, state.queue.len());
        self.refuse_all(without_place, &full);
        drop(state);
        self.reconsider_waiters();
    }

    /// Refuses all waiters: the model is not configured any more.
    pub(crate) fn close(self: &Arc<Self>) {
        self.members.store(Arc::default());
        self.reconsider_waiters();
    }

    /// Leaves the queue. `false` if the waiter has its answer already.
    pub(crate) fn leave(&self, place: &QueuePlace) -> bool {
        let left = self.lock().queue.remove(place);
        if left.is_some() {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        left.is_some()
    }

    /// Leaves the queue at the end of the maximum wait. `None` if the waiter has its answer already.
    pub(crate) fn time_out(&self, place: &QueuePlace) -> Option<Full> {
        let left = self.leave(place);
        let ahead = || self.lock().queue.len_ahead(&place.account, place.class);
        left.then(|| self.full_behind(FullReason::WaitTimeout, ahead()))
    }

    /// Gives free permits to the waiters, in the order of the queue, until there is no free permit or no
    /// waiter that may use it. If no endpoint is usable, all waiters are refused.
    pub(super) fn serve(self: &Arc<Self>, state: &mut QueueState, served: &mut Served) {
        let unconditional = Ask::new(Account::ANONYMOUS);
        while state.queue.len() > 0 {
            // If a request without any conditions would wait, no waiter is examined.
            match self.choose_for(&unconditional) {
                Choice::NoEndpoint => {
                    let all = state.queue.drain();
                    return self.refuse_all(all, &self.no_endpoint());
                }
                Choice::Wait => return,
                Choice::Lease(_) => {}
            }
            let mut lease = None;
            let accept = |entry: &WaitEntry| {
                lease = self.try_lease(&entry.ask).ok();
                lease.is_some()
            };
            let Some(entry) = state.queue.pop_accepted(accept) else {
                return;
            };
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            let lease = lease.expect("a waiter is accepted with a lease");
            let permit = EndpointPermit::new(lease, entry.since.elapsed());
            match entry.reply.send(Ok(permit)) {
                Ok(()) => served.any = true,
                Err(unused) => served.unused.extend(unused.ok()),
            }
        }
    }

    fn refuse_all(&self, waiters: Vec<WaitEntry>, full: &Full) {
        self.waiting.fetch_sub(waiters.len(), Ordering::SeqCst);
        for waiter in waiters {
            waiter.refuse(full.clone());
        }
    }
}
