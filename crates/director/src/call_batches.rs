//! Combines calls to the API that are made at about the same time.
//!
//! A call is sent at once while few calls are in flight. Further ones wait until one of those has its reply, and
//! then go together, in one request that one of their callers sends. So a single call never waits, and a busy
//! director makes few requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::director_api::{BatchedCall, BatchedReply};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How many requests are in flight before calls wait.
const MAX_IN_FLIGHT: usize = 2;
/// The most calls of one request.
const MAX_CALLS: usize = 32;
/// How long a call waits for its turn. If the requests in flight take longer, it is sent alone.
const MAX_WAIT: Duration = Duration::from_millis(200);
/// How long calls are sent alone after a process of the API did not know batches: the API is being upgraded.
const ALONE_FOR: Duration = Duration::from_secs(30);

/// The calls of this process.
#[derive(Default)]
pub(crate) struct CallBatches {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    in_flight: usize,
    waiting: Vec<WaitingCall>,
    alone_until: Option<Instant>,
}

struct WaitingCall {
    call: BatchedCall,
    turn: oneshot::Sender<Turn>,
}

/// What a caller does next.
pub(crate) enum Turn {
    /// It sends its call alone, and keeps the right to do so until the reply is there.
    Alone(Option<InFlight>),
    /// It sends a batch, with its own call at the end.
    Lead(LedBatch),
    /// Its call was part of a batch, and this is the reply.
    Replied(BatchedReply),
}

/// The right to have a request in flight. When it is dropped, those who wait get it.
pub(crate) struct InFlight {
    batches: Option<Arc<CallBatches>>,
}

/// A batch that its leader sends. The others send their calls alone if it is dropped.
pub(crate) struct LedBatch {
    followers: Vec<WaitingCall>,
    own: BatchedCall,
    in_flight: InFlight,
}

impl CallBatches {
    /// Waits until the caller may send something, or has its reply.
    pub(crate) async fn turn(self: &Arc<Self>, call: impl FnOnce() -> BatchedCall) -> Turn {
        let (turn, next) = oneshot::channel();
        {
            let mut state = self.lock();
            if state
                .alone_until
                .is_some_and(|until| Instant::now() < until)
            {
                return Turn::Alone(None);
            }
            if state.in_flight < MAX_IN_FLIGHT {
                state.in_flight += 1;
                return Turn::Alone(Some(self.in_flight()));
            }
            let call = call();
            state.waiting.push(WaitingCall { call, turn });
        }
        match tokio::time::timeout(MAX_WAIT, next).await {
            Ok(Ok(turn)) => turn,
            // The leader of the batch is gone or did not get a reply, or all wait too long.
            Ok(Err(_)) | Err(_) => Turn::Alone(None),
        }
    }

    /// Sends calls alone for a while.
    pub(crate) fn pause(&self) {
        self.lock().alone_until = Some(Instant::now() + ALONE_FOR);
    }

    fn in_flight(self: &Arc<Self>) -> InFlight {
        InFlight {
            batches: Some(Arc::clone(self)),
        }
    }

    /// A reply has arrived: those who wait may send the next request.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let leader;
            let followers = {
                let mut state = self.lock();
                let count = state.waiting.len().min(MAX_CALLS);
                let mut calls: Vec<_> = state.waiting.drain(..count).collect();
                let Some(last) = calls.pop() else {
                    state.in_flight -= 1;
                    return;
                };
                leader = last;
                calls
            };
            let in_flight = self.in_flight();
            let turn = if followers.is_empty() {
                Turn::Alone(Some(in_flight))
            } else {
                Turn::Lead(LedBatch {
                    followers,
                    own: leader.call,
                    in_flight,
                })
            };
            match leader.turn.send(turn) {
                Ok(()) => return,
                // The caller is gone, so another one leads.
                Err(Turn::Lead(batch)) => {
                    let LedBatch {
                        followers,
                        mut in_flight,
                        ..
                    } = batch;
                    in_flight.batches = None;
                    self.lock().waiting.splice(..0, followers);
                }
                Err(Turn::Alone(in_flight)) => {
                    if let Some(mut in_flight) = in_flight {
                        in_flight.batches = None;
                    }
                }
                Err(Turn::Replied(_)) => unreachable!("a caller gets a reply from its leader only"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some(batches) = self.batches.take() {
            batches.pass_on();
        }
    }
}

impl LedBatch {
    /// The calls of the batch, that of the leader last, and what distributes the replies.
    pub(crate) fn into_calls(self) -> (Vec<BatchedCall>, BatchFollowers) {
        let Self {
            followers,
            own,
            in_flight,
        } = self;
        let (mut calls, turns): (Vec<_>, Vec<_>) = followers
            .into_iter()
            .map(|waiting| (waiting.call, waiting.turn))
            .unzip();
        calls.push(own);
        let followers = BatchFollowers {
            turns,
            _in_flight: in_flight,
        };
        (calls, followers)
    }
}

/// The callers who wait for the replies to a batch. If it is dropped, they send their calls alone.
pub(crate) struct BatchFollowers {
    turns: Vec<oneshot::Sender<Turn>>,
    _in_flight: InFlight,
}

impl BatchFollowers {
    /// Gives each caller its reply; returns that of the leader.
    pub(crate) fn distribute(self, replies: Vec<Option<BatchedReply>>) -> Option<BatchedReply> {
        let mut replies = replies.into_iter();
        for (turn, reply) in self.turns.into_iter().zip(replies.by_ref()) {
            if let Some(reply) = reply {
                // The caller may be gone.
                turn.send(Turn::Replied(reply)).ok();
            }
        }
        replies.next().flatten()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tidegate_core::director_api::{LeaseCall, LeaseReply};
    use tidegate_core::lease::Nonce;
    use tidegate_core::leases::{Holder, JobRef};
    use tidegate_core::{Account, JobId};
    use tokio_util::task::TaskTracker;

    use super::*;

    fn call(number: usize) -> BatchedCall {
        BatchedCall::Lease(LeaseCall {
            holder: Holder {
                name: "one".to_owned(),
                boot: 1,
            },
            job: JobRef {
                account: Account::ANONYMOUS,
                id: JobId::parse(&format!("job{number}")).unwrap(),
            },
            nonce: Nonce(number as u128),
        })
    }

    /// The rights to send that are given without waiting.
    async fn fill(batches: &Arc<CallBatches>) -> Vec<Turn> {
        let mut turns = Vec::new();
        for number in 0..MAX_IN_FLIGHT {
            let turn = batches.turn(|| call(number)).await;
            assert!(matches!(turn, Turn::Alone(Some(_))));
            turns.push(turn);
        }
        turns
    }

    fn wait(
        tasks: &TaskTracker,
        batches: &Arc<CallBatches>,
        number: usize,
    ) -> tokio::task::JoinHandle<Turn> {
        let batches = Arc::clone(batches);
        tasks.spawn(async move { batches.turn(|| call(number)).await })
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_go_together_and_each_gets_its_reply() {
        let (batches, tasks) = (Arc::new(CallBatches::default()), TaskTracker::new());
        let mut in_flight = fill(&batches).await;
        let waiting: Vec<_> = (10..13).map(|n| wait(&tasks, &batches, n)).collect();
        tokio::task::yield_now().await;
        in_flight.pop();
        let [first, second, leader] = waiting.try_into().unwrap_or_else(|_| unreachable!());
        let Turn::Lead(batch) = leader.await.unwrap() else {
            panic!("the last one sends the batch");
        };
        let (calls, followers) = batch.into_calls();
        assert_eq!(calls, [call(10), call(11), call(12)]);
        let reply = |reply| Some(BatchedReply::Lease(reply));
        let replies = vec![
            reply(LeaseReply::Over),
            None,
            reply(LeaseReply::HeldByAnother),
        ];
        assert_eq!(
            followers.distribute(replies),
            reply(LeaseReply::HeldByAnother)
        );
        assert!(matches!(
            first.await.unwrap(),
            Turn::Replied(BatchedReply::Lease(LeaseReply::Over))
        ));
        assert!(matches!(second.await.unwrap(), Turn::Alone(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_are_gone_hold_up_nobody() {
        let (batches, tasks) = (Arc::new(CallBatches::default()), TaskTracker::new());
        let mut in_flight = fill(&batches).await;
        let stays = wait(&tasks, &batches, 10);
        tokio::task::yield_now().await;
        // They wait, and are dropped.
        for number in 11..13 {
            assert!(batches.turn(|| call(number)).now_or_never().is_none());
        }
        in_flight.pop();
        assert!(matches!(stays.await.unwrap(), Turn::Alone(Some(_))));
        // Both rights were given back.
        in_flight.clear();
        fill(&batches).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_is_not_sent_lets_its_calls_go_alone() {
        let (batches, tasks) = (Arc::new(CallBatches::default()), TaskTracker::new());
        let mut in_flight = fill(&batches).await;
        let follower = wait(&tasks, &batches, 10);
        tokio::task::yield_now().await;
        let leader = wait(&tasks, &batches, 11);
        tokio::task::yield_now().await;
        in_flight.pop();
        drop(leader.await.unwrap());
        assert!(matches!(follower.await.unwrap(), Turn::Alone(None)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_does_not_wait_long() {
        let batches = Arc::new(CallBatches::default());
        let _in_flight = fill(&batches).await;
        let began = Instant::now();
        assert!(matches!(batches.turn(|| call(9)).await, Turn::Alone(None)));
        assert!(began.elapsed() <= MAX_WAIT * 2);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_sent_alone_while_the_api_is_upgraded() {
        let batches = Arc::new(CallBatches::default());
        let _in_flight = fill(&batches).await;
        batches.pause();
        let began = Instant::now();
        assert!(matches!(batches.turn(|| call(9)).await, Turn::Alone(None)));
        assert!(began.elapsed().is_zero());
    }
}
