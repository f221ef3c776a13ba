//! Which Python runs the model, and where it finds our package.
//!
//! Installed from the wheel, this program lies beside the environment's `python` and the package is
//! in its site-packages. In a checkout it lies in `target/`, and the package is built here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, bail};

/// An interpreter and what must be on its path to find our package.
#[derive(Debug, Clone)]
pub(crate) struct Python {
    pub(crate) program: PathBuf,
    pub(crate) path: Vec<PathBuf>,
}

impl Python {
    /// Finds it: the given one, the one beside this program, the active environment's, `python3`.
    pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<Self> {
        let here = std::env::current_exe()
            .and_then(|exe| exe.canonicalize())
            .context("cannot find out where this program is")?;
        let checkout = Checkout::around(&here);
        let program = given
            .map(Path::to_path_buf)
            .or_else(|| beside(&here))
            .or_else(active)
            .unwrap_or_else(|| PathBuf::from("python3"));
        let program = absolute(program);
        let path = match checkout {
            Some(checkout) => {
                let mine = std::env::var_os("PYTHONPATH").unwrap_or_default();
                std::iter::once(checkout.package()?)
                    .chain(
                        std::env::split_paths(&mine)
                            .filter(|path| path.components().next().is_some()),
                    )
                    .collect()
            }
            None => Vec::new(),
        };
        Ok(Self { program, path })
    }

    /// A command that runs this interpreter with our package at hand.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Ok(path) = std::env::join_paths(&self.path)
            && !self.path.is_empty()
        {
            command.env("PYTHONPATH", path);
        }
        command
    }
}

fn beside(here: &Path) -> Option<PathBuf> {
    let bin = here.parent()?;
    ["python", "python3"]
        .into_iter()
        .map(|name| bin.join(name))
        .find(|python| python.exists())
}

fn active() -> Option<PathBuf> {
    let environment = PathBuf::from(std::env::var_os("VIRTUAL_ENV")?);
    Some(environment.join("bin").join("python")).filter(|python| python.exists())
}

/// Children start in another folder, so a relative path would not be found. A bare name is looked up
/// in `PATH` and stays as it is.
fn absolute(program: PathBuf) -> PathBuf {
    if program.components().count() > 1 {
        std::path::absolute(&program).unwrap_or(program)
    } else {
        program
    }
}

/// A checkout of the project, when this program was built in one.
struct Checkout {
    root: PathBuf,
    profile: String,
}

impl Checkout {
    fn around(here: &Path) -> Option<Self> {
        let profile = here.parent()?;
        let target = profile
            .ancestors()
            .find(|folder| folder.file_name().is_some_and(|name| name == "target"))?;
        let root = target.parent()?;
        let package = root.join("python").join("tidegate").join("__init__.py");
        let profile = profile.file_name()?.to_string_lossy().into_owned();
        package.is_file().then(|| Self {
            root: root.to_path_buf(),
            profile,
        })
    }

    /// The folder to put on the path, its extension module built if it is missing or older than its source.
    fn package(&self) -> anyhow::Result<PathBuf> {
        let package = self.root.join("python");
        let module = package.join("tidegate").join("_native.abi3.so");
        let built = modified(&module);
        let sources = [
            self.root.join("python").join("src"),
            self.root.join("crates").join("ipc").join("src"),
        ];
        let newest = sources.iter().filter_map(|folder| newest_in(folder)).max();
        if built.is_none() || newest > built {
            self.build(&module)?;
        }
        Ok(package)
    }

    fn build(&self, module: &Path) -> anyhow::Result<()> {
        tracing::info!("building the Python extension of this checkout");
        let profile = if self.profile == "debug" {
            "dev"
        } else {
            &self.profile
        };
        let mut cargo = Command::new("cargo");
        cargo
            .current_dir(&self.root)
            .args([
                "build",
                "--quiet",
                "-p",
                "tidegate-python",
                "--profile",
                profile,
            ])
            .stdin(Stdio::null());
        let status = cargo
            .status()
            .context("could not run `cargo` to build the Python extension")?;
        if !status.success() {
            bail!("`cargo build -p tidegate-python` failed; its messages are above");
        }
        let library = self
            .root
            .join("target")
            .join(&self.profile)
            .join("lib_native.so");
        // Renamed into place, because a running child may have the old one mapped.
        // Under a name of its own: another server may be at it.
        let fresh = module.with_extension(format!("{}.new", std::process::id()));
        std::fs::copy(&library, &fresh)
            .with_context(|| format!("could not copy `{}`", library.display()))?;
        std::fs::rename(&fresh, module)
            .with_context(|| format!("could not write `{}`", module.display()))
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|meta| meta.modified()).ok()
}

fn newest_in(folder: &Path) -> Option<SystemTime> {
    let files = std::fs::read_dir(folder).ok()?.flatten();
    files.filter_map(|entry| modified(&entry.path())).max()
}
