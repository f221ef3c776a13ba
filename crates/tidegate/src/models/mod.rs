//! The models of a server: found in folders, loaded, and kept up with.

mod folder;
mod names;
mod offering;
mod trained;
mod watch;

pub(crate) use folder::Wanted;
pub(crate) use names::{full_name, slug};
pub(crate) use offering::{Manner, Offering};
pub(crate) use watch::Watch;
