//! Finds the Python interpreter that runs the model, and the tidegate package.
//!
//! Installed from the wheel, this program is next to the `python` of the environment, and the package
//! is in its site-packages. In a checkout it is in `target/`, and this file builds the package.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use anyhow::{Context, bail};
use tidegate_runtime::ToolProcess;

/// An interpreter, and the `PYTHONPATH` with which it finds the package.
#[derive(Debug, Clone)]
pub(crate) struct Python {
    pub(crate) program: PathBuf,
    pub(crate) path: Vec<PathBuf>,
}

impl Python {
    /// The given interpreter, the one next to this program, the one of the active environment, or
    /// `python3`.
    pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<Self> {
        let here = std::env::current_exe()
            .and_then(|exe| exe.canonicalize())
            .context("failed to find the path of this program")?;
        let checkout = Checkout::around(&here);
        let program = given
            .map(Path::to_path_buf)
            .or_else(|| next_to(&here))
            .or_else(active)
            .unwrap_or_else(|| PathBuf::from("python3"));
        let program = absolute(program);
        let path = match checkout {
            Some(checkout) => with_inherited(checkout.package()?),
            None => Vec::new(),
        };
        Ok(Self { program, path })
    }

    /// An interpreter without the package, which gets it from a link in the folder `links`. The whole
    /// site-packages of this program would hide packages of that interpreter.
    pub(crate) fn with_program(&self, program: PathBuf, links: &Path) -> anyhow::Result<Self> {
        let path = if self.path.is_empty() {
            let folder = links.join("package");
            link_package(&installed_package(&self.program)?, &folder)
                .with_context(|| format!("failed to write `{}`", folder.display()))?;
            with_inherited(folder)
        } else {
            self.path.clone()
        };
        Ok(Self { program, path })
    }

    /// A command that runs this interpreter and finds the package.
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

/// The folder and the `PYTHONPATH` of this process.
fn with_inherited(folder: PathBuf) -> Vec<PathBuf> {
    let inherited = std::env::var_os("PYTHONPATH").unwrap_or_default();
    let inherited =
        std::env::split_paths(&inherited).filter(|path| path.components().next().is_some());
    std::iter::once(folder).chain(inherited).collect()
}

/// The folder of the package. The interpreter next to this program has it; `default` is asked if there is
/// none.
fn installed_package(default: &Path) -> anyhow::Result<PathBuf> {
    const PRINT_FOLDER: &str = "import os, tidegate; print(os.path.dirname(tidegate.__file__))";
    let here = std::env::current_exe().and_then(|exe| exe.canonicalize());
    let program = here.ok().and_then(|here| next_to(&here));
    let program = program.as_deref().unwrap_or(default);
    let mut command = Command::new(program);
    command
        .args(["-c", PRINT_FOLDER])
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = ToolProcess::output(&mut command)
        .with_context(|| format!("failed to start `{}`", program.display()))?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if folder.is_empty() {
        bail!("`{}` does not have the tidegate package", program.display());
    }
    Ok(folder.into())
}

fn link_package(package: &Path, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // The model may run as another user.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    match std::os::unix::fs::symlink(package, folder.join("tidegate")) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn next_to(here: &Path) -> Option<PathBuf> {
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

/// Children start in another folder, so a relative path must become absolute. A bare name stays, and
/// is looked up in `PATH`.
fn absolute(program: PathBuf) -> PathBuf {
    if program.components().count() > 1 {
        std::path::absolute(&program).unwrap_or(program)
    } else {
        program
    }
}

/// The checkout in which this program was built.
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

    /// The folder for `PYTHONPATH`. Builds the extension module if it is missing or older than its
    /// source.
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
        tracing::info!("building the Python extension");
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
            .context("failed to run `cargo` to build the Python extension")?;
        if !status.success() {
            bail!("`cargo build -p tidegate-python` failed; its messages are above");
        }
        let library = self
            .root
            .join("target")
            .join(&self.profile)
            .join("lib_native.so");
        // Renamed into place, because a running child may have the old file mapped. The name is unique,
        // because another server may build at the same time.
        let fresh = module.with_extension(format!("{}.new", std::process::id()));
        std::fs::copy(&library, &fresh)
            .with_context(|| format!("failed to copy `{}`", library.display()))?;
        std::fs::rename(&fresh, module)
            .with_context(|| format!("failed to write `{}`", module.display()))
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|meta| meta.modified()).ok()
}

fn newest_in(folder: &Path) -> Option<SystemTime> {
    let files = std::fs::read_dir(folder).ok()?.flatten();
    files.filter_map(|entry| modified(&entry.path())).max()
}
