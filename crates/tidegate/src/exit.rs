//! The exit codes of the program.

/// The operation failed.
pub(crate) const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
pub(crate) const USAGE: u8 = 64;
/// Ended by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;
/// Ended by a second SIGTERM.
pub(crate) const TERMINATED: u8 = 143;
