//! Environments: the Python packages of a model, as `build` in its `cog.yaml` lists them.
//!
//! `tidegate install` creates a virtual environment per list of packages ([`installer`]), and the commands
//! that run a model use it ([`selection`]). What cannot be installed into an environment is reported:
//! [`system_packages`] and [`notices`].

mod build_spec;
mod content_hash;
mod installer;
mod interpreter;
mod notices;
mod progress;
mod python_version;
mod requirements;
mod selection;
mod store;
mod system_packages;

pub(crate) use build_spec::BuildSpec;
pub(crate) use installer::{InstallRequest, install};
pub(crate) use notices::{Notice, notices};
pub(crate) use progress::InstallProgress;
pub(crate) use selection::{install_folder, install_target, select};
pub(crate) use store::EnvironmentStore;
