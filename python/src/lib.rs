//! `tidegate._native`: the native part of the Python child process.
//!
//! Works with the server's `runtime` crate on the other end of the wire (`tidegate-ipc`), and with the
//! Python package `tidegate` in this folder, which loads the model, decides how it is called and what
//! its values mean. This crate holds only what must be fast or must not be blocked by user code:
//!
//! - [`control`], [`health`], [`lifecycle`], [`descendants`], [`gpu_check`]: the child process as a whole;
//! - [`slot`], [`job`], [`cancel_signal`]: jobs, one after the other or in batches, and how a
//!   cancel reaches them;
//! - [`decode`], [`encode`]: JSON to Python values and back;
//! - [`stdio`], [`std_streams`]: the standard streams, which user code must not share with the channel.

mod cancel_signal;
mod config;
mod control;
mod decode;
mod descendants;
mod encode;
mod frame_buffer;
mod gpu_check;
mod health;
mod job;
mod lifecycle;
mod line_buffer;
mod slot;
mod spare_buffers;
mod std_streams;
mod stdio;
mod sys;

/// The extension module.
// Canceling a job relies on the GIL: see `ChildJob::run_interruptible`.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::cancel_signal::on_cancel_signal;
    #[pymodule_export]
    use crate::config::configure;
    #[pymodule_export]
    use crate::encode::{FileRef, use_runpod_numbers};
    #[pymodule_export]
    use crate::gpu_check::{report_gpu_memory, set_gpu_functions};
    #[pymodule_export]
    use crate::health::{finish_healthcheck, set_healthcheck};
    #[pymodule_export]
    use crate::job::{ChildJob, begin_batch_call, end_batch_call, report_batch_call};
    #[pymodule_export]
    use crate::lifecycle::{
        InitMessage, after_fork, exit_after, exit_now, log, receive_init, send_concurrency,
        send_fatal, send_ready, send_schema, start_threads, wait_for_setup, write_server_log,
    };
    #[pymodule_export]
    use crate::slot::{Slot, connect_slots, set_single_job};
    #[pymodule_export]
    use crate::std_streams::{ByteStream, TextStream, current_job};
}
