//! The outbox messages that this server holds in memory: bounded in number and bytes, and by
//! receiver, so that a receiver that does not respond leaves room for the others.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_core::outbox::{MessageLimits, OutboxMessage};
use tokio::sync::Notify;

/// A receiver may have one part in this many of what is free. Its messages may each wait for a
/// timeout; the more receivers do, the less the next one gets, but always one message.
const SHARE: usize = 8;
/// The most that is taken from the store at once. What ends meanwhile is still sent directly.
const BATCH: MessageLimits = MessageLimits {
    messages: 256,
    bytes: 32 * 1024 * 1024,
};

/// The messages in memory.
pub(super) struct InFlight {
    limits: MessageLimits,
    state: Mutex<InFlightState>,
    /// Notified when a message leaves and the poller waits for that.
    freed: Notify,
}

#[derive(Default)]
struct InFlightState {
    ids: HashSet<String>,
    total: Load,
    receivers: HashMap<String, Load>,
    /// Held for messages that are being taken from the store.
    reserved: Load,
    /// Whether the poller waits for a message to leave.
    wanted: bool,
}

/// A number of messages and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Load {
    messages: usize,
    bytes: usize,
}

/// What can be taken from the store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InFlightRoom {
    pub(super) total: MessageLimits,
    pub(super) per_receiver: MessageLimits,
    /// The receivers that have their share already.
    pub(super) full_receivers: Vec<String>,
}

/// A message in memory. Dropping it makes room for another.
pub(crate) struct InFlightMessage {
    pub(super) message: OutboxMessage,
    entry: InFlightEntry,
}

/// The place of a message.
pub(super) struct InFlightEntry {
    id: String,
    receiver: String,
    bytes: usize,
    in_flight: Arc<InFlight>,
}

impl InFlightMessage {
    /// The message without its place, which is free when the entry is dropped.
    pub(super) fn into_parts(self) -> (OutboxMessage, InFlightEntry) {
        (self.message, self.entry)
    }
}

impl InFlight {
    pub(super) fn new(limits: MessageLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// Adds a message if there is room for it; otherwise returns its id.
    pub(super) fn try_enter(
        self: &Arc<Self>,
        message: OutboxMessage,
    ) -> Result<InFlightMessage, String> {
        let entered = self.with(|state| {
            let free = state.free(self.limits);
            let has_room = free.messages > 0 && free.bytes > 0;
            let is_full = state
                .receivers
                .get(&message.receiver)
                .is_some_and(|load| load.has_share_of(free));
            has_room && !is_full && state.enter(&message)
        });
        match entered {
            true => Ok(self.entered(message)),
            false => Err(message.id),
        }
    }

    /// Reserves room for messages from the store, until [`Self::fill`]. `None` if there is none.
    pub(super) fn reserve(&self) -> Option<InFlightRoom> {
        self.with(|state| {
            let free = state.free(self.limits);
            if free.messages == 0 || free.bytes == 0 {
                state.wanted = true;
                return None;
            }
            let full_receivers: Vec<String> = state
                .receivers
                .iter()
                .filter(|(_, load)| load.has_share_of(free))
                .map(|(receiver, _)| receiver.clone())
                .collect();
            state.wanted = !full_receivers.is_empty();
            state.reserved = Load {
                messages: free.messages.min(BATCH.messages),
                bytes: free.bytes.min(BATCH.bytes),
            };
            Some(InFlightRoom {
                total: state.reserved.as_limits(),
                per_receiver: free.share().as_limits(),
                full_receivers,
            })
        })
    }

    /// Ends the reservation, and adds the messages for which it was made. A message that this server
    /// is still sending is left out: its attempt outlasted its claim.
    pub(super) fn fill(self: &Arc<Self>, taken: Vec<OutboxMessage>) -> Vec<InFlightMessage> {
        let entered: Vec<OutboxMessage> = self.with(|state| {
            state.reserved = Load::default();
            taken
                .into_iter()
                .filter(|message| state.enter(message))
                .collect()
        });
        entered
            .into_iter()
            .map(|message| self.entered(message))
            .collect()
    }

    /// Returns when a message has left after [`Self::reserve`] found too little room.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    fn entered(self: &Arc<Self>, message: OutboxMessage) -> InFlightMessage {
        let entry = InFlightEntry {
            id: message.id.clone(),
            receiver: message.receiver.clone(),
            bytes: message.body.len(),
            in_flight: Arc::clone(self),
        };
        InFlightMessage { message, entry }
    }

    fn with<R>(&self, f: impl FnOnce(&mut InFlightState) -> R) -> R {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl InFlightState {
    fn free(&self, limits: MessageLimits) -> Load {
        Load {
            messages: limits
                .messages
                .saturating_sub(self.total.messages + self.reserved.messages),
            bytes: limits
                .bytes
                .saturating_sub(self.total.bytes + self.reserved.bytes),
        }
    }

    /// Returns `false` if the message is in memory already.
    fn enter(&mut self, message: &OutboxMessage) -> bool {
        if !self.ids.insert(message.id.clone()) {
            return false;
        }
        self.total.add(message.body.len());
        self.receivers
            .entry(message.receiver.clone())
            .or_default()
            .add(message.body.len());
        true
    }

    /// Returns whether the poller waits for this.
    fn leave(&mut self, entry: &InFlightEntry) -> bool {
        self.ids.remove(&entry.id);
        self.total.remove(entry.bytes);
        if let Some(load) = self.receivers.get_mut(&entry.receiver) {
            load.remove(entry.bytes);
            if load.messages == 0 {
                self.receivers.remove(&entry.receiver);
            }
        }
        std::mem::take(&mut self.wanted)
    }
}

impl Load {
    fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.messages -= 1;
        self.bytes -= bytes;
    }

    /// The share of one receiver, if this is free.
    fn share(self) -> Self {
        Self {
            messages: (self.messages / SHARE).max(1),
            bytes: (self.bytes / SHARE).max(1),
        }
    }

    /// Whether a receiver with this load has its share of `free`.
    fn has_share_of(self, free: Self) -> bool {
        let share = free.share();
        self.messages >= share.messages || self.bytes >= share.bytes
    }

    fn as_limits(self) -> MessageLimits {
        MessageLimits {
            messages: self.messages,
            bytes: self.bytes,
        }
    }
}

impl Drop for InFlightEntry {
    fn drop(&mut self) {
        if self.in_flight.with(|state| state.leave(self)) {
            self.in_flight.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use jiff::Timestamp;
    use tidegate_core::record::WebhookSpec;
    use tidegate_core::{Account, JobId};

    use super::*;

    fn message(receiver: &str, number: usize, bytes: usize) -> OutboxMessage {
        OutboxMessage {
            id: format!("msg_{receiver}_{number}"),
            account: Account::ANONYMOUS,
            job: JobId::parse("a").unwrap(),
            model: "ann/echo".to_owned(),
            receiver: receiver.to_owned(),
            hook: WebhookSpec {
                url: format!("http://{receiver}/"),
                events: Vec::new(),
                headers: Default::default(),
                origin: None,
                streams: false,
                streams_files: false,
                stream_url: None,
            },
            body: vec![0; bytes].into(),
            created_at: Timestamp::UNIX_EPOCH,
            retry_until: None,
            attempts: 0,
            claim: None,
        }
    }

    fn in_flight(messages: usize, bytes: usize) -> Arc<InFlight> {
        Arc::new(InFlight::new(MessageLimits { messages, bytes }))
    }

    /// How many messages of this size one receiver can have.
    fn admitted(in_flight: &Arc<InFlight>, receiver: &str, bytes: usize) -> Vec<InFlightMessage> {
        (0..1000)
            .map_while(|number| in_flight.try_enter(message(receiver, number, bytes)).ok())
            .collect()
    }

    #[test]
    fn one_receiver_gets_its_share_and_every_other_one_gets_less() {
        let in_flight = in_flight(100, 1_000_000);
        let first = admitted(&in_flight, "first", 1);
        assert_eq!(first.len(), 11, "an eighth of what is left");
        let second = admitted(&in_flight, "second", 1);
        assert!((5..11).contains(&second.len()), "{}", second.len());
        let others: Vec<_> = (0..100)
            .map(|number| admitted(&in_flight, &number.to_string(), 1))
            .collect();
        let counts: Vec<usize> = others.iter().map(Vec::len).collect();
        assert!(counts.is_sorted_by(|one, next| one >= next), "{counts:?}");
        assert!(counts[25] > 0, "{counts:?}");
    }

    #[test]
    fn bytes_are_limited_and_one_message_may_exceed_the_limit() {
        let in_flight = in_flight(100, 1000);
        let large = admitted(&in_flight, "large", 500);
        assert_eq!(large.len(), 1, "more than its share");
        let larger = in_flight.try_enter(message("larger", 0, 5000));
        assert!(larger.is_ok(), "some bytes were free");
        assert!(in_flight.try_enter(message("small", 0, 1)).is_err());
        drop(larger);
        assert!(in_flight.try_enter(message("small", 0, 1)).is_ok());
    }

    #[test]
    fn a_reservation_leaves_room_for_others_and_is_used_once() {
        let in_flight = in_flight(1000, 1 << 30);
        let room = in_flight.reserve().unwrap();
        assert_eq!(
            (room.total.messages, room.per_receiver.messages),
            (256, 125)
        );
        let direct = admitted(&in_flight, "direct", 1);
        assert_eq!(direct.len(), 82, "a share of the rest");
        let taken = in_flight.fill(vec![message("a", 0, 1), message("direct", 0, 1)]);
        assert_eq!(taken.len(), 1, "the other one is being sent");
        drop((direct, taken));
        let state = in_flight.with(|state| (state.total, state.reserved, state.receivers.len()));
        assert_eq!(state, (Load::default(), Load::default(), 0));
    }

    #[test]
    fn the_poller_is_notified_if_a_receiver_was_full() {
        let in_flight = in_flight(80, 1_000_000);
        let mut full = admitted(&in_flight, "full", 1);
        assert_eq!(in_flight.reserve().unwrap().full_receivers, ["full"]);
        in_flight.fill(Vec::new());
        assert!(in_flight.freed().now_or_never().is_none());
        full.pop();
        assert!(in_flight.freed().now_or_never().is_some());
        full.pop();
        assert!(in_flight.freed().now_or_never().is_none(), "only once");
    }
}
