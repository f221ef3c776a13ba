//! Where jobs are written down: `--data-dir`, or a place of the user's that belongs to this model and port.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use tidegate_core::chain;
use tidegate_store::{SqliteOptions, SqliteStore, StoreOpenError};

use crate::usage_error::UsageError;

/// What the command line says about the data folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DataDir {
    /// Nothing is written down.
    None,
    /// There.
    At(PathBuf),
}

impl FromStr for DataDir {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => {
                Err("it is empty; give a folder, or `none` to keep jobs in memory only".to_owned())
            }
            "none" => Ok(Self::None),
            folder => Ok(Self::At(folder.into())),
        }
    }
}

/// A data folder that is open.
pub(crate) struct OpenDataDir {
    pub(crate) folder: PathBuf,
    pub(crate) store: Arc<SqliteStore>,
}

/// Opens the store. Where nothing was said and nothing can be written, jobs are kept in memory only.
pub(crate) fn open(
    said: Option<&DataDir>,
    model: &Path,
    port: u16,
) -> Result<Option<OpenDataDir>, UsageError> {
    let open = |folder: &Path| {
        SqliteStore::open(folder, &SqliteOptions::default()).map(|store| OpenDataDir {
            folder: folder.to_owned(),
            store: Arc::new(store),
        })
    };
    match said {
        Some(DataDir::None) => Ok(None),
        Some(DataDir::At(folder)) => open(folder).map(Some).map_err(refused),
        // A port that nobody chose will be another one the next time.
        None if port == 0 => Ok(None),
        None => {
            let Some(folder) = usual(model, &port.to_string()) else {
                return Ok(None);
            };
            match open(&folder) {
                Ok(opened) => Ok(Some(opened)),
                Err(error) => {
                    let reason = chain(&error).to_string();
                    tracing::warn!(
                        reason,
                        "jobs are kept in memory only and do not survive a restart; give a folder with --data-dir"
                    );
                    Ok(None)
                }
            }
        }
    }
}

fn refused(error: StoreOpenError) -> UsageError {
    UsageError::new(format!("--data-dir cannot be used: {}", chain(&error)))
        .hint("give another folder, or `none` to keep jobs in memory only")
}

/// The same model on the same port, or for the same worker, finds its jobs again; others do not get in its way.
pub(crate) fn usual(model: &Path, whose: &str) -> Option<PathBuf> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state =
        variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    let name = model.file_name().map_or_else(
        || "model".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let mut hasher = DefaultHasher::new();
    model.hash(&mut hasher);
    Some(
        state
            .join("tidegate")
            .join(format!("{name}-{:08x}-{whose}", hasher.finish() as u32)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_a_word_and_nothing_is_a_mistake() {
        assert_eq!("none".parse(), Ok(DataDir::None));
        assert_eq!("./none".parse(), Ok(DataDir::At("./none".into())));
        assert!("".parse::<DataDir>().is_err());
    }

    #[test]
    fn two_servers_have_two_places() {
        let places: Vec<_> = [("/a/m", "1"), ("/b/m", "1"), ("/a/m", "2")]
            .iter()
            .filter_map(|(model, port)| usual(Path::new(model), port))
            .collect();
        assert!(
            places
                .iter()
                .all(|place| places.iter().filter(|other| *other == place).count() == 1),
            "{places:?}"
        );
    }
}
