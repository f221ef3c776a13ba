//! The wire between the server and a model's Python child.
//!
//! Both ends compile this crate: `runtime` (the parent) and `python` (the child's extension module).
//! It knows two channels and nothing about who reads them:
//!
//! - [`control`]: the life of the child as a whole, on its stdin and stdout;
//! - [`slot`]: one job after the other, on one Unix socket per slot.
//!
//! [`frame`] says where a message ends. There is no I/O here, so that the extension stays small and
//! neither side drags the other's runtime in.

pub mod control;
pub mod frame;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod slot;

/// Once a job has printed this many bytes, its child sends no more of them: the server keeps fewer, and
/// both would only be kept busy.
pub const MAX_LOG_BYTES_SENT: usize = 17 * 1024 * 1024;

/// Inputs above this many bytes travel through a file instead of the slot's socket.
pub const SPILL_ABOVE: usize = 6 * 1024 * 1024;
