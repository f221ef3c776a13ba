//! The models of a server: finds them in folders, loads them, and reloads them when they change.

mod choice;
mod loader;
mod names;
mod serve_target;
mod trained;
mod watcher;

pub(crate) use choice::{choose, read_all, read_one};
pub(crate) use loader::{LoadPolicy, ModelLoader};
pub(crate) use names::{full_name, slug};
pub(crate) use serve_target::ServeTarget;
pub(crate) use watcher::ModelWatcher;
