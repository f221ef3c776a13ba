//! A request that waits in a queue.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use super::QueuePlace;
use crate::group::{EndpointGroup, Full, FullReason};
use crate::permits::EndpointPermit;

/// A request that waits for a permit. Dropping it leaves the queue at once.
#[must_use = "a waiter that is dropped leaves the queue"]
pub struct PermitWaiter {
    group: Arc<EndpointGroup>,
    place: QueuePlace,
    reply: oneshot::Receiver<Result<EndpointPermit, Full>>,
    deadline: Pin<Box<Sleep>>,
}

impl PermitWaiter {
    pub(crate) fn new(
        group: Arc<EndpointGroup>,
        place: QueuePlace,
        reply: oneshot::Receiver<Result<EndpointPermit, Full>>,
        deadline: Instant,
    ) -> Self {
        Self {
            group,
            place,
            reply,
            deadline: Box::pin(tokio::time::sleep_until(deadline)),
        }
    }

    /// When the request joined the queue.
    pub fn since(&self) -> Instant {
        self.place.since
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Result<EndpointPermit, Full>> {
        Pin::new(&mut self.reply)
            .poll(cx)
            // A queue that is dropped with its waiters has no endpoint any more.
            .map(|reply| {
                reply.unwrap_or_else(|_| Err(self.group.full_behind(FullReason::Cleared, 0)))
            })
    }
}

impl Future for PermitWaiter {
    type Output = Result<EndpointPermit, Full>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(reply) = self.poll_reply(cx) {
            return Poll::Ready(reply);
        }
        if self.deadline.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        match self.group.time_out(&self.place) {
            Some(full) => Poll::Ready(Err(full)),
            // It has just left the queue: the answer is there.
            None => self.poll_reply(cx),
        }
    }
}

impl Drop for PermitWaiter {
    fn drop(&mut self) {
        // A permit that was sent already is given back with `reply`, which is dropped after this.
        self.group.leave(&self.place);
    }
}

impl fmt::Debug for PermitWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QueuePlace {
            number, account, ..
        } = &self.place;
        write!(f, "waiter {number:?} of {account}")
    }
}
