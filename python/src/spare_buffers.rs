//! Large buffers that are used again, for messages of all slots.
//!
//! Memory of this size goes back to the kernel when it is freed, and a page fault for every page of the
//! next message costs more than copying the message.

use std::sync::Mutex;

/// Smaller buffers are not worth keeping: the allocator keeps them itself.
pub(crate) const LARGE: usize = 64 * 1024;
/// How many buffers are kept at most: one that receives and one that sends.
const MAX_BUFFERS: usize = 2;
/// Larger buffers are freed.
const MAX_BYTES: usize = 4 * 1024 * 1024;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A buffer for at least `capacity` bytes. Its contents are arbitrary.
pub(crate) fn take(capacity: usize) -> Vec<u8> {
    // Without waiting: in a fork of the child the lock may never be released.
    let spare = SPARE.try_lock().ok().and_then(|mut spare| {
        let found = spare
            .iter()
            .position(|buffer| buffer.capacity() >= capacity)?;
        Some(spare.swap_remove(found))
    });
    spare.unwrap_or_else(|| Vec::with_capacity(capacity))
}

/// Keeps a buffer that is not used any more, if it is worth it.
pub(crate) fn give_back(buffer: Vec<u8>) {
    if !(LARGE..=MAX_BYTES).contains(&buffer.capacity()) {
        return;
    }
    if let Ok(mut spare) = SPARE.try_lock() {
        if spare.len() == MAX_BUFFERS {
            // The next message may be as large as this one.
            spare.remove(0);
        }
        spare.push(buffer);
    }
}
