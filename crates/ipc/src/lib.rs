//! The protocol between the server and a child process of a model.
//!
//! Both ends compile this crate: `runtime` (the parent) and `python` (the child's extension module).
//! It defines two channels:
//!
//! - [`control`]: messages about the child as a whole, on its stdin and stdout;
//! - [`slot`]: one job after the other, on one Unix socket per slot.
//!
//! [`frame`] delimits the messages. [`ProcessTag`] marks the processes of a child. This crate does no I/O, so that the extension stays small and neither
//! side depends on the runtime of the other.

pub mod control;
pub mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod process_tag;
pub mod slot;

pub use process_tag::ProcessTag;

/// A child sends at most this many bytes of a job's output to stdout and stderr. The server keeps fewer,
/// so more would only cost time.
pub const MAX_LOG_BYTES_SENT: usize = 17 * 1024 * 1024;

/// An input larger than this many bytes is passed in a file instead of the slot's socket.
pub const SPILL_ABOVE: usize = 6 * 1024 * 1024;
