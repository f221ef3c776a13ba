//! The server's side of one child process: start it, wait until it is ready, send it jobs, notice
//! its death.

pub(crate) mod boot;
pub(crate) mod control_channel;
pub(crate) mod courier;
mod interpreter_path;
pub(crate) mod job_request;
pub(crate) mod message_parser;
pub(crate) mod outgoing_frame;
pub(crate) mod pool_slot;
pub(crate) mod process;
pub(crate) mod queued_caller;
pub(crate) mod slot_socket;
pub(crate) mod spawn;
