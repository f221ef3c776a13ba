//! `tidegate._native`: the half of the Python child that is not Python.
//!
//! Neighbours: the server's `runtime` crate on the other side of the wire (`tidegate-ipc`), and the
//! package `tidegate` in this folder, which loads the model, decides how it is called and what its
//! values mean. Here is only what must be quick or must not be stopped by user code:
//!
//! - [`control`], [`health`], [`life`]: the child as a whole;
//! - [`slot`], [`job`], [`wake`]: one job after the other, and how a cancel reaches it;
//! - [`decode`], [`encode`]: JSON in and out;
//! - [`stream`]: what the user's code prints.

mod config;
mod control;
mod decode;
mod encode;
mod fd;
mod health;
mod inbox;
mod job;
mod life;
mod lines;
mod slot;
mod stream;
mod wake;

/// The extension module.
// The cancel of a job relies on the GIL: see `job::guarded`.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    use crate::config::configure;
    #[pymodule_export]
    use crate::encode::{FileRef, loosen};
    #[pymodule_export]
    use crate::health::{answer_healthcheck, set_healthcheck};
    #[pymodule_export]
    use crate::job::Job;
    #[pymodule_export]
    use crate::life::{
        Init, after_fork, begin, described, exit_after, exit_now, fatal, ready, remark,
        start_threads, tell_operator, wants,
    };
    #[pymodule_export]
    use crate::slot::{Slot, connect, set_solo};
    #[pymodule_export]
    use crate::stream::{ByteStream, TextStream, current_job};
    #[pymodule_export]
    use crate::wake::on_wake;
}
