//! Event loops: threads that serve connections, each with a single-threaded runtime of its own.
//!
//! A connection stays on its thread, together with the connections to backends that its requests use. So no
//! event of a request wakes another thread, and no task moves between processors. That is worth it where
//! forwarding a request costs little more than its system calls; a long computation for one request delays
//! the other connections of its thread.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// The threads. Dropping them ends the tasks that still run on them.
pub struct EventLoops {
    loops: Vec<EventLoop>,
    /// Counts the places, so that threads with equally many connections take turns.
    placed: AtomicUsize,
    stop: CancellationToken,
}

struct EventLoop {
    handle: Handle,
    /// The connections that it serves.
    open: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// The place of one connection on an event loop; given back when it is dropped.
pub(super) struct EventLoopPlace(Arc<AtomicUsize>);

impl EventLoops {
    /// Starts `count` threads, at least one.
    pub fn start(count: usize) -> io::Result<Self> {
        let mut all = Self {
            loops: Vec::new(),
            placed: AtomicUsize::new(0),
            stop: CancellationToken::new(),
        };
        for number in 0..count.max(1) {
            // A failure drops those that have started, which ends them.
            all.loops.push(EventLoop::start(number, &all.stop)?);
        }
        Ok(all)
    }

    /// A place on the thread with the fewest connections.
    pub(super) fn place(&self) -> (&Handle, EventLoopPlace) {
        let first = self.placed.fetch_add(1, Ordering::Relaxed) % self.loops.len();
        let (before, from_first) = self.loops.split_at(first);
        let chosen = from_first
            .iter()
            .chain(before)
            .min_by_key(|event_loop| event_loop.open.load(Ordering::Relaxed))
            .expect("there is at least one event loop");
        chosen.open.fetch_add(1, Ordering::Relaxed);
        (&chosen.handle, EventLoopPlace(Arc::clone(&chosen.open)))
    }
}

impl EventLoop {
    fn start(number: usize, stop: &CancellationToken) -> io::Result<Self> {
        let (started, handle) = mpsc::channel();
        let stop = stop.clone();
        let thread = std::thread::Builder::new()
            .name(format!("event-loop-{number}"))
            .spawn(move || run(&started, &stop))?;
        let handle = handle.recv().unwrap_or_else(|_| {
            let message = "the thread has ended before its runtime started";
            Err(io::Error::other(message))
        })?;
        Ok(Self {
            handle,
            open: Arc::default(),
            thread: Some(thread),
        })
    }
}

/// Runs the tasks of one thread until `stop`. The runtime belongs to the thread: an asynchronous caller must
/// not drop one, not even when the thread cannot be started.
fn run(started: &mpsc::Sender<io::Result<Handle>>, stop: &CancellationToken) {
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            started.send(Err(error)).ok(); // The caller waits for it.
            return;
        }
    };
    started.send(Ok(runtime.handle().clone())).ok(); // The same.
    runtime.block_on(stop.cancelled());
    // A name that the system still resolves must not delay the end of the program.
    runtime.shutdown_background();
}

impl Drop for EventLoopPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for EventLoops {
    fn drop(&mut self) {
        self.stop.cancel();
        for event_loop in &mut self.loops {
            if let Some(thread) = event_loop.thread.take() {
                thread.join().ok(); // It has ended, if only by a panic.
            }
        }
    }
}

impl std::fmt::Debug for EventLoops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let open = self.loops.iter().map(|event_loop| &event_loop.open);
        f.debug_list().entries(open).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_spread_evenly() {
        let loops = EventLoops::start(2).unwrap();
        let places: Vec<_> = (0..4).map(|_| loops.place()).collect();
        let mut threads: Vec<_> = places.iter().map(|(handle, _)| handle.id()).collect();
        threads.sort_by_key(ToString::to_string);
        threads.dedup();
        assert_eq!(threads.len(), 2);
        assert_eq!(format!("{loops:?}"), "[2, 2]");
        drop(places);
        assert_eq!(format!("{loops:?}"), "[0, 0]");
    }

    #[test]
    fn threads_with_equally_many_connections_take_turns() {
        let loops = EventLoops::start(2).unwrap();
        let next = || loops.place().0.id();
        let [first, second, third] = [next(), next(), next()];
        assert_ne!(first, second);
        assert_eq!(first, third);
    }
}
