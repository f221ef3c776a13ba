//! Finds the interpreter with the version that a model asks for.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate_runtime::ToolProcess;

use super::python_version::{OLDEST, PythonVersion};
use crate::usage_error::UsageError;

const PRINT_VERSION: &str = "import sys; print('.'.join(map(str, sys.version_info[:3])))";

/// What an environment is created from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BaseInterpreter {
    /// An interpreter on this machine.
    Program(PathBuf),
    /// A version that `uv` finds or downloads.
    FromUv(PythonVersion),
}

/// The interpreter for an environment: `default` if it has the version, else one on this machine, else one
/// from `uv`.
pub(super) fn find(
    wanted: Option<PythonVersion>,
    default: &Path,
    uv: Option<&Path>,
) -> Result<BaseInterpreter, UsageError> {
    let Some(wanted) = wanted else {
        return Ok(BaseInterpreter::Program(default.to_owned()));
    };
    if wanted < OLDEST {
        return Err(UsageError::new(format!(
            "`python_version` is {wanted}, and models need Python {OLDEST} or newer"
        ))
        .hint(newer_version_advice()));
    }
    let found = std::iter::once(default.to_owned())
        .chain(candidates(wanted))
        .find(|program| version_of(program).is_some_and(|version| wanted.accepts(version)));
    match (found, uv) {
        (Some(program), _) => Ok(BaseInterpreter::Program(program)),
        (None, Some(_)) => Ok(BaseInterpreter::FromUv(wanted)),
        (None, None) => Err(UsageError::new(format!(
            "cog.yaml asks for Python {wanted}, and this machine has no `{}`",
            wanted.program()
        ))
        .hint("install it, or install `uv`, which downloads it: https://docs.astral.sh/uv; or change `python_version`")),
    }
}

/// What to do about a version that is too old.
pub(super) fn newer_version_advice() -> String {
    format!("set `python_version: \"{OLDEST}\"` or a newer version in cog.yaml")
}

/// Interpreters that may have the version: those on `PATH`, and those that pyenv has installed.
fn candidates(wanted: PythonVersion) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|folder| folder.join(wanted.program()))
        .collect();
    let pyenv = std::env::var_os("PYENV_ROOT").map_or_else(
        || std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv")),
        |root| Some(root.into()),
    );
    let versions = pyenv.map(|root| root.join("versions"));
    let installed = versions.and_then(|folder| folder.read_dir().ok());
    programs.extend(
        installed
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path().join("bin").join(wanted.program())),
    );
    programs.retain(|program| program.is_file());
    programs
}

/// The version of an interpreter; nothing if it does not start.
pub(crate) fn version_of(program: &Path) -> Option<PythonVersion> {
    // `-I -S`: nothing of the environment is imported, which is faster.
    let mut command = Command::new(program);
    command
        .args(["-I", "-S", "-c", PRINT_VERSION])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = ToolProcess::output(&mut command).ok()?;
    String::from_utf8_lossy(&output.stdout).trim().parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A program that claims to be this version of Python.
    pub(in super::super) fn python(folder: &Path, version: &str) -> PathBuf {
        let program = folder.join("python");
        std::fs::write(&program, format!("#!/bin/sh\necho {version}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    #[test]
    fn the_default_interpreter_is_used_if_it_has_the_version() {
        let folder = tempfile::tempdir().unwrap();
        let default = python(folder.path(), "3.98.2");
        let version = |text: &str| Some(text.parse().unwrap());
        let program = Ok::<_, String>(BaseInterpreter::Program(default.clone()));
        let find = |wanted, uv| find(wanted, &default, uv).map_err(|error| error.to_string());
        assert_eq!(find(None, None), program);
        assert_eq!(find(version("3.98"), None), program);
        let wanted = version("3.99");
        let uv = Path::new("uv");
        assert_eq!(
            find(wanted, Some(uv)),
            Ok(BaseInterpreter::FromUv(wanted.unwrap()))
        );
        assert!(find(wanted, None).unwrap_err().contains("`python3.99`"));
        assert!(find(version("3.8"), Some(uv)).unwrap_err().contains("3.10"));
    }
}
