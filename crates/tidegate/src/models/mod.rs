//! The models of a server: found in folders, loaded, and kept up with.

mod loader;
mod names;
mod serve_target;
mod trained;
mod watcher;

pub(crate) use loader::{LoadPolicy, ModelLoader};
pub(crate) use names::{full_name, slug};
pub(crate) use serve_target::ServeTarget;
pub(crate) use watcher::ModelWatcher;
