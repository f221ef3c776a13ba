//! Where the configuration comes from.

use std::path::{Path, PathBuf};

use super::file::{FileSet, SystemSecrets};
use crate::fleet::{BackendFlag, Fleet, FleetError, FleetSource, parse_fleet};

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub enum FleetInput {
    /// A file, which is watched.
    File {
        /// Its path.
        path: PathBuf,
        /// Top-level keys that are settings of the command and are skipped.
        settings: &'static [&'static str],
    },
    /// The flags `--backend`: the models are those that the backends report.
    Backends(Vec<BackendFlag>),
    /// A configuration that does not change.
    Fixed(Box<Fleet>),
}

/// An attempt to read a configuration, and the files that were read for it.
pub(super) struct LoadedFleet {
    pub(super) fleet: Result<Fleet, FleetError>,
    pub(super) files: FileSet,
}

impl FleetInput {
    /// Backends of the command line may have the base URL of OpenAI's clients, which ends in `/v1`: the
    /// paths of the API begin with it.
    pub(super) fn without_api_prefix(self) -> Self {
        let Self::Backends(mut flags) = self else {
            return self;
        };
        for flag in &mut flags {
            if let Some(prefix) = flag.url.prefix.strip_suffix("/v1") {
                flag.url.prefix = prefix.to_owned();
            }
        }
        Self::Backends(flags)
    }

    /// Reads and validates the configuration.
    pub(super) fn load(&self) -> LoadedFleet {
        let mut files = FileSet::default();
        let fleet = match self {
            Self::File { path, settings } => load_file(path, settings, &mut files),
            Self::Backends(_) => Ok(Fleet::default()),
            Self::Fixed(fleet) => Ok(Fleet::clone(fleet)),
        };
        LoadedFleet { fleet, files }
    }
}

fn load_file(path: &Path, settings: &[&str], files: &mut FileSet) -> Result<Fleet, FleetError> {
    // The state of a file is noted before it is read: a change in between is then seen later.
    files.add(path);
    let text =
        std::fs::read_to_string(path).map_err(|error| FleetError::unreadable(path, &error))?;
    let secrets = SystemSecrets::default();
    let source = FleetSource {
        path,
        text: &text,
        settings,
    };
    let fleet = parse_fleet(source, &secrets);
    files.extend(secrets.into_files());
    fleet
}
