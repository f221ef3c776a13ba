//! The messages that wait for a retry, of all jobs of a model: bounded, because a receiver may be
//! unreachable for a day.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// How much may wait for a retry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryBufferLimits {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

/// The messages that wait for a retry. Above the limits the oldest is evicted.
pub(crate) struct RetryBuffer {
    limits: RetryBufferLimits,
    state: Mutex<BufferState>,
}

#[derive(Default)]
struct BufferState {
    next: u64,
    bytes: usize,
    /// Keyed by number: the smallest is the oldest.
    messages: BTreeMap<u64, BufferedMessage>,
}

struct BufferedMessage {
    bytes: usize,
    evicted: CancellationToken,
}

/// The entry of one message in the buffer. Dropping it removes the entry.
pub(super) struct RetryTicket {
    number: u64,
    evicted: CancellationToken,
    buffer: Arc<RetryBuffer>,
}

impl RetryBuffer {
    pub(crate) fn new(limits: RetryBufferLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    pub(super) fn enter(self: &Arc<Self>, bytes: usize) -> RetryTicket {
        let evicted = CancellationToken::new();
        let number = self.with(|state| {
            let number = state.next;
            state.next += 1;
            state.bytes += bytes;
            state.messages.insert(
                number,
                BufferedMessage {
                    bytes,
                    evicted: evicted.clone(),
                },
            );
            while (state.messages.len() > self.limits.messages || state.bytes > self.limits.bytes)
                && state.messages.len() > 1
            {
                state.evict_oldest();
            }
            number
        });
        RetryTicket {
            number,
            evicted,
            buffer: Arc::clone(self),
        }
    }

    /// The number of messages that wait for a retry.
    pub(crate) fn len(&self) -> usize {
        self.with(|state| state.messages.len())
    }

    fn with<R>(&self, f: impl FnOnce(&mut BufferState) -> R) -> R {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BufferState {
    fn evict_oldest(&mut self) {
        if let Some((_, oldest)) = self.messages.pop_first() {
            self.bytes -= oldest.bytes;
            oldest.evicted.cancel();
        }
    }
}

impl RetryTicket {
    /// Returns when the buffer has evicted this message.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for RetryTicket {
    fn drop(&mut self) {
        self.buffer.with(|state| {
            if let Some(message) = state.messages.remove(&self.number) {
                state.bytes -= message.bytes;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(messages: usize, bytes: usize) -> Arc<RetryBuffer> {
        Arc::new(RetryBuffer::new(RetryBufferLimits { messages, bytes }))
    }

    #[test]
    fn the_oldest_message_is_evicted_above_a_limit() {
        for (messages, bytes) in [(2, 1000), (100, 25)] {
            let buffer = buffer(messages, bytes);
            let tickets: Vec<RetryTicket> = (0..3).map(|_| buffer.enter(10)).collect();
            let evicted: Vec<bool> = tickets
                .iter()
                .map(|ticket| ticket.evicted.is_cancelled())
                .collect();
            assert_eq!(evicted, [true, false, false]);
        }
    }

    #[test]
    fn a_dropped_ticket_removes_its_entry_and_a_single_large_message_stays() {
        let buffer = buffer(2, 25);
        for _ in 0..10 {
            assert!(!buffer.enter(10).evicted.is_cancelled());
        }
        let large = buffer.enter(1000);
        assert!(!large.evicted.is_cancelled());
        drop(large);
        assert_eq!(
            buffer.with(|state| (state.bytes, state.messages.len())),
            (0, 0)
        );
    }
}
