//! The messages that wait to be sent again, all jobs together: bounded, because a receiver may be down
//! for a day.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// The messages that wait. Above the bounds the oldest is sent away.
pub(crate) struct Waiting {
    bounds: Bounds,
    room: Mutex<Room>,
}

#[derive(Default)]
struct Room {
    next: u64,
    bytes: usize,
    /// By age.
    messages: BTreeMap<u64, Message>,
}

struct Message {
    bytes: usize,
    sent_away: CancellationToken,
}

/// One message's place. Dropping it leaves.
pub(super) struct Place {
    number: u64,
    sent_away: CancellationToken,
    waiting: Arc<Waiting>,
}

impl Waiting {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            room: Mutex::default(),
        }
    }

    pub(super) fn enter(self: &Arc<Self>, bytes: usize) -> Place {
        let sent_away = CancellationToken::new();
        let number = self.with(|room| {
            let number = room.next;
            room.next += 1;
            room.bytes += bytes;
            room.messages.insert(
                number,
                Message {
                    bytes,
                    sent_away: sent_away.clone(),
                },
            );
            while (room.messages.len() > self.bounds.messages || room.bytes > self.bounds.bytes)
                && room.messages.len() > 1
            {
                room.send_oldest_away();
            }
            number
        });
        Place {
            number,
            sent_away,
            waiting: Arc::clone(self),
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.with(|room| room.messages.len())
    }

    fn with<R>(&self, f: impl FnOnce(&mut Room) -> R) -> R {
        f(&mut self.room.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Room {
    fn send_oldest_away(&mut self) {
        if let Some((_, oldest)) = self.messages.pop_first() {
            self.bytes -= oldest.bytes;
            oldest.sent_away.cancel();
        }
    }
}

impl Place {
    /// Comes back when there is no room for this message any more.
    pub(super) async fn sent_away(&self) {
        self.sent_away.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.with(|room| {
            if let Some(message) = room.messages.remove(&self.number) {
                room.bytes -= message.bytes;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(messages: usize, bytes: usize) -> Arc<Waiting> {
        Arc::new(Waiting::new(Bounds { messages, bytes }))
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many_or_too_much() {
        for (messages, bytes) in [(2, 1000), (100, 25)] {
            let waiting = waiting(messages, bytes);
            let places: Vec<Place> = (0..3).map(|_| waiting.enter(10)).collect();
            let away: Vec<bool> = places
                .iter()
                .map(|place| place.sent_away.is_cancelled())
                .collect();
            assert_eq!(away, [true, false, false]);
        }
    }

    #[test]
    fn who_leaves_makes_room_and_the_last_one_stays_however_large() {
        let waiting = waiting(2, 25);
        for _ in 0..10 {
            assert!(!waiting.enter(10).sent_away.is_cancelled());
        }
        let large = waiting.enter(1000);
        assert!(!large.sent_away.is_cancelled());
        drop(large);
        assert_eq!(
            waiting.with(|room| (room.bytes, room.messages.len())),
            (0, 0)
        );
    }
}
