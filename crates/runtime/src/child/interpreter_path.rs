//! The search path of a child: `python` in a subprocess of the model is the model's interpreter.

use std::ffi::OsString;
use std::fs::Permissions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::launch_config::LaunchConfig;
use crate::scratch::Scratch;

/// The names by which subprocesses call Python.
const NAMES: [&str; 2] = ["python", "python3"];

/// `PATH`, and `VIRTUAL_ENV` if the interpreter belongs to a virtual environment.
pub(super) fn variables(launch: &LaunchConfig, scratch: &Scratch) -> Vec<(OsString, OsString)> {
    let given = launch.env.iter().rev().find(|(name, _)| name == "PATH");
    let path = given
        .map(|(_, value)| value.clone())
        .or_else(|| std::env::var_os("PATH"))
        .unwrap_or_default();
    let Some(program) = resolve(&launch.python) else {
        return Vec::new();
    };
    if let Some(environment) = virtual_environment(&program) {
        let bin = environment.join("bin");
        return vec![
            ("PATH".into(), with_first(bin, &path)),
            ("VIRTUAL_ENV".into(), environment.into()),
        ];
    }
    let is_first = |name: &&str| find(name, &path).is_some_and(|found| is_same(&found, &program));
    if NAMES.iter().all(is_first) {
        return Vec::new();
    }
    match launchers(&program, scratch) {
        Ok(folder) => vec![("PATH".into(), with_first(folder, &path))],
        Err(error) => {
            tracing::warn!(%error, "failed to put the model's interpreter on the PATH of its subprocesses");
            Vec::new()
        }
    }
}

/// The absolute path of the interpreter. For a bare name, the server searches its own `PATH`.
fn resolve(program: &Path) -> Option<PathBuf> {
    if program.is_absolute() {
        return Some(program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    find(program.to_str()?, &path)
}

fn find(name: &str, path: &OsString) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|file| {
            file.metadata().is_ok_and(|metadata| {
                metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
            })
        })
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The folder of the virtual environment that a program belongs to.
fn virtual_environment(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?.parent()?;
    folder
        .join("pyvenv.cfg")
        .is_file()
        .then(|| folder.to_owned())
}

fn with_first(folder: PathBuf, path: &OsString) -> OsString {
    let rest = std::env::split_paths(path).filter(|other| *other != folder);
    let all = std::iter::once(folder.clone()).chain(rest);
    std::env::join_paths(all).unwrap_or_else(|_| path.clone())
}

/// A folder with the programs `python` and `python3`, which start the interpreter. Not the interpreter's
/// own folder: it may be `/usr/bin`, whose other programs would then hide those of the folders before it.
/// Not links, because Python derives the place of its library from the name that it is called by.
fn launchers(program: &Path, scratch: &Scratch) -> io::Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    let folder = scratch
        .path()
        .join(format!("python-{:08x}", hasher.finish() as u32));
    std::fs::create_dir_all(&folder)?;
    // The model may run as another user.
    std::fs::set_permissions(&folder, Permissions::from_mode(0o755))?;
    let quoted = program.to_string_lossy().replace('\'', r"'\''");
    for name in NAMES {
        let file = folder.join(name);
        if file.exists() {
            continue;
        }
        // Renamed into place, because another child may call it.
        let fresh = scratch.unique_path();
        std::fs::write(&fresh, format!("#!/bin/sh\nexec '{quoted}' \"$@\"\n"))?;
        std::fs::set_permissions(&fresh, Permissions::from_mode(0o755))?;
        std::fs::rename(&fresh, &file)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_starts_the_interpreter_with_its_arguments() {
        let scratch = Scratch::new(None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("it's python");
        std::fs::write(&program, "#!/bin/sh\necho \"$1-$2\"\n").unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let launchers = launchers(&program, &scratch).unwrap();
        for name in NAMES {
            let output = std::process::Command::new(launchers.join(name))
                .args(["a b", "c"])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "a b-c\n");
        }
    }

    #[test]
    fn the_folder_is_first_and_occurs_once() {
        let path = with_first("/v/bin".into(), &OsString::from("/usr/bin:/v/bin:/bin"));
        assert_eq!(path, "/v/bin:/usr/bin:/bin");
    }
}
