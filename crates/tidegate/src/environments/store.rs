//! Where environments are stored, and how they are found again.
//!
//! An environment cannot be moved, so it is created under the name that it keeps, `HASH.UNIQUE`. The link
//! `HASH` points to it from the moment at which it is complete: whatever happens during an installation, no
//! model gets half an environment. A lock file per hash makes concurrent installations wait for each other.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::build_spec::BuildSpec;
use super::content_hash;
use crate::data_dir::{self, DataDir};

/// The folder of the environments in a data directory.
const FOLDER: &str = "environments";
/// The file in an environment that says what it is.
const DESCRIPTION: &str = "tidegate-environment.json";

/// The folders with environments.
#[derive(Debug, Clone)]
pub(crate) struct EnvironmentStore {
    /// New environments are created in the first folder, and searched in all of them.
    folders: Vec<PathBuf>,
}

/// A complete environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) path: PathBuf,
    pub(crate) description: EnvironmentDescription,
}

/// What an environment is for; people read it to decide whether they still need it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EnvironmentDescription {
    /// The folder of the model that it was created for.
    pub(crate) model: PathBuf,
    /// The version of Python.
    pub(crate) python: String,
    pub(crate) requirements: Vec<String>,
    pub(crate) created_at: jiff::Timestamp,
}

impl Environment {
    /// The interpreter.
    pub(crate) fn python(&self) -> PathBuf {
        self.path.join("bin").join("python")
    }
}

impl EnvironmentStore {
    /// The environments in the data directory, and those in the default folder.
    pub(crate) fn new(data_dir: Option<&DataDir>) -> Self {
        let given = match data_dir {
            Some(DataDir::At(folder)) => std::path::absolute(folder).ok(),
            Some(DataDir::None) | None => None,
        };
        let folders = given.into_iter().chain(data_dir::state_folder());
        Self {
            folders: folders.map(|folder| folder.join(FOLDER)).collect(),
        }
    }

    /// The environment of a model, if it is installed. `python` is the interpreter for models that ask for
    /// no version.
    pub(crate) fn find(&self, spec: &BuildSpec, python: &Path) -> Option<Environment> {
        if !spec.needs_environment() {
            return None;
        }
        let hash = content_hash::of(spec, python);
        self.folders
            .iter()
            .find_map(|folder| open(&folder.join(&hash)))
    }

    /// The folder for a new environment; none if the machine has no place for it.
    pub(super) fn folder_for(&self, spec: &BuildSpec, python: &Path) -> Option<EnvironmentFolder> {
        let parent = self.folders.first()?.clone();
        let hash = content_hash::of(spec, python);
        Some(EnvironmentFolder { parent, hash })
    }
}

/// Opens the environment that a link points to. One whose interpreter was removed is not usable.
fn open(link: &Path) -> Option<Environment> {
    let path = link.canonicalize().ok()?;
    let description = std::fs::read(path.join(DESCRIPTION)).ok()?;
    let environment = Environment {
        path,
        description: serde_json::from_slice(&description).ok()?,
    };
    environment.python().exists().then_some(environment)
}

/// The place of one environment.
pub(super) struct EnvironmentFolder {
    parent: PathBuf,
    hash: String,
}

impl EnvironmentFolder {
    /// Waits until no other process installs this environment. `on_wait` is called before a wait.
    pub(super) fn lock(&self, on_wait: impl FnOnce()) -> io::Result<File> {
        std::fs::create_dir_all(&self.parent)?;
        let lock = File::create(self.parent.join(format!("{}.lock", self.hash)))?;
        if lock.try_lock().is_err() {
            on_wait();
            lock.lock()?;
        }
        Ok(lock)
    }

    /// The complete environment, if there is one.
    pub(super) fn open(&self) -> Option<Environment> {
        open(&self.link())
    }

    /// Removes what interrupted installations left, and returns the path for a new environment. Only
    /// with the lock.
    pub(super) fn prepare(&self) -> io::Result<PathBuf> {
        let prefix = format!("{}.", self.hash);
        for entry in self.parent.read_dir()?.flatten() {
            let is_attempt = entry.file_name().to_string_lossy().starts_with(&prefix);
            let path = entry.path();
            if is_attempt && path.is_dir() && !path.join(DESCRIPTION).exists() {
                std::fs::remove_dir_all(&path)?;
            }
        }
        let unique = jiff::Timestamp::now().as_nanosecond();
        Ok(self.parent.join(format!("{prefix}{unique:x}")))
    }

    /// Makes a new environment the one that models use. Only with the lock.
    pub(super) fn publish(
        &self,
        path: &Path,
        description: &EnvironmentDescription,
    ) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(description)?;
        std::fs::write(path.join(DESCRIPTION), text)?;
        let fresh = self.parent.join(format!("{}.link", self.hash));
        // It is left if a previous installation was interrupted here.
        std::fs::remove_file(&fresh).ok();
        std::os::unix::fs::symlink(path.file_name().unwrap_or_default(), &fresh)?;
        std::fs::rename(&fresh, self.link())
    }

    fn link(&self) -> PathBuf {
        self.parent.join(&self.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interpreter that does not start.
    const PYTHON: &str = "none";

    fn setup() -> (tempfile::TempDir, EnvironmentStore, BuildSpec) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("cog.yaml"),
            "build:\n  python_packages: [a]\n",
        )
        .unwrap();
        let spec = BuildSpec::read(dir.path()).unwrap();
        let store = EnvironmentStore::new(Some(&DataDir::At(dir.path().join("data"))));
        (dir, store, spec)
    }

    fn fill(path: &Path) -> EnvironmentDescription {
        std::fs::create_dir_all(path.join("bin")).unwrap();
        std::fs::write(path.join("bin/python"), "").unwrap();
        EnvironmentDescription {
            model: "/m".into(),
            python: "3.12.1".to_owned(),
            requirements: vec!["a".to_owned()],
            created_at: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn an_environment_is_found_when_it_is_complete() {
        let (_dir, store, spec) = setup();
        let folder = store.folder_for(&spec, PYTHON.as_ref()).unwrap();
        let _lock = folder.lock(|| ()).unwrap();
        let interrupted = folder.prepare().unwrap();
        fill(&interrupted);
        assert!(store.find(&spec, PYTHON.as_ref()).is_none());
        let path = folder.prepare().unwrap();
        assert!(!interrupted.exists());
        let description = fill(&path);
        folder.publish(&path, &description).unwrap();
        let found = store.find(&spec, PYTHON.as_ref()).unwrap();
        assert_eq!(found.description, description);
        assert_eq!(found.path, path.canonicalize().unwrap());
        // A second installation keeps the first environment, which a server may use.
        let again = folder.prepare().unwrap();
        let description = fill(&again);
        folder.publish(&again, &description).unwrap();
        assert!(path.exists());
        assert_eq!(
            store.find(&spec, PYTHON.as_ref()).unwrap().path,
            again.canonicalize().unwrap()
        );
    }

    #[test]
    fn an_environment_without_its_interpreter_is_not_used() {
        let (_dir, store, spec) = setup();
        let folder = store.folder_for(&spec, PYTHON.as_ref()).unwrap();
        let _lock = folder.lock(|| ()).unwrap();
        let path = folder.prepare().unwrap();
        folder.publish(&path, &fill(&path)).unwrap_or_default();
        std::fs::remove_file(path.join("bin/python")).unwrap();
        assert!(store.find(&spec, PYTHON.as_ref()).is_none());
    }
}
