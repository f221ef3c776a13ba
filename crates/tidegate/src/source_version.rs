//! The version of a model: a hash of its files, so that servers with the same files have the same version.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use jiff::Timestamp;
use ring::digest::{Context, SHA256};

/// Of larger files, only size and modification time are hashed: weights would take minutes to read.
const MAX_HASHED_FILE: u64 = 64 * 1024 * 1024;

/// The version of a model's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceVersion {
    /// 64 hexadecimal digits.
    pub(crate) id: String,
    /// The latest modification time.
    pub(crate) changed_at: Timestamp,
}

/// Hashes the files of a model, without hidden folders, compiled Python and files that `.dockerignore`
/// excludes.
pub(crate) fn of_folder(folder: &Path) -> io::Result<SourceVersion> {
    let (folder, files) = files_of(folder)?;
    Ok(of_files(&folder, &files))
}

/// Hashes the files of a Python package, without those that building it writes next to them.
pub(crate) fn of_package(folder: &Path) -> io::Result<SourceVersion> {
    let (folder, mut files) = files_of(folder)?;
    files.retain(|name| !is_written_by_build(name));
    Ok(of_files(&folder, &files))
}

/// Whether a build of the package has written the file. Only top-level folders are named `build` and
/// `dist` for this reason: below, they are modules.
fn is_written_by_build(name: &Path) -> bool {
    let mut folders = name.parent().into_iter().flat_map(Path::iter);
    let is_top_level = ["build", "dist"]
        .map(OsStr::new)
        .map(Some)
        .contains(&folders.clone().next());
    is_top_level
        || folders.any(|folder| Path::new(folder).extension() == Some(OsStr::new("egg-info")))
}

fn of_files(folder: &Path, files: &[PathBuf]) -> SourceVersion {
    let (mut hash, mut changed_at) = (Context::new(&SHA256), Timestamp::UNIX_EPOCH);
    for name in files {
        let Some(changed) = add_file(&mut hash, folder, name) else {
            continue;
        };
        changed_at = changed_at.max(changed);
    }
    let id = hash
        .finish()
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    SourceVersion { id, changed_at }
}

/// A fingerprint of the files from their metadata, which changes when they change.
pub(crate) fn fingerprint(folder: &Path) -> u64 {
    let (folder, files) = files_of(folder).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    for name in files {
        let metadata = fs::metadata(folder.join(&name)).ok();
        (
            name,
            metadata.as_ref().map(fs::Metadata::len),
            metadata.and_then(|metadata| metadata.modified().ok()),
        )
            .hash(&mut hasher);
    }
    hasher.finish()
}

/// The files of a model, sorted by name. Those of a script are the Python files next to it, because its
/// folder may be a whole home directory.
fn files_of(model: &Path) -> io::Result<(PathBuf, Vec<PathBuf>)> {
    let mut files = Vec::new();
    let folder = if model.is_file() {
        model.parent().unwrap_or(model)
    } else {
        model
    };
    if model.is_file() {
        let names = fs::read_dir(folder)?
            .flatten()
            .map(|entry| PathBuf::from(entry.file_name()));
        files.extend(
            names.filter(|name| name.extension().is_some_and(|extension| extension == "py")),
        );
    } else {
        collect(fs::read_dir(folder)?, folder, Path::new(""), &mut files);
        let ignored = ignore_rules(folder);
        files.retain(|name| {
            is_essential(name) || !ignored.matched_path_or_any_parents(name, false).is_ignore()
        });
    }
    files.sort();
    Ok((folder.to_owned(), files))
}

/// Whether a file always belongs to the model, even if `.dockerignore` excludes it.
fn is_essential(name: &Path) -> bool {
    let is_top_level = name.parent() == Some(Path::new(""));
    is_top_level
        && (name.extension().is_some_and(|kind| kind == "py")
            || name == "cog.yaml"
            || name == ".dockerignore")
}

/// The rules of `.dockerignore`: Cog excludes these files from the image, so they are not part of the
/// model.
fn ignore_rules(folder: &Path) -> Gitignore {
    let text = fs::read_to_string(folder.join(".dockerignore")).unwrap_or_default();
    let mut rules = GitignoreBuilder::new("");
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
    {
        let (not, pattern) = line
            .strip_prefix('!')
            .map_or(("", line), |pattern| ("!", pattern.trim()));
        let pattern = pattern.trim_start_matches("./").trim_matches('/');
        // Unlike Git, Docker matches every pattern from the top folder.
        if !matches!(pattern, "" | ".")
            && let Err(error) = rules.add_line(None, &format!("{not}/{pattern}"))
        {
            tracing::warn!(folder = %folder.display(), rule = line, %error, "failed to parse a rule in .dockerignore");
        }
    }
    rules.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Unreadable files are skipped: the model cannot use them either.
fn collect(entries: fs::ReadDir, root: &Path, below: &Path, files: &mut Vec<PathBuf>) {
    for entry in entries.flatten() {
        let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else {
            continue;
        };
        let (text, path) = (name.to_string_lossy(), below.join(&name));
        if kind.is_dir() {
            if !text.starts_with('.')
                && text != "__pycache__"
                && let Ok(entries) = fs::read_dir(root.join(&path))
            {
                collect(entries, root, &path, files);
            }
        } else if !text.ends_with(".pyc") {
            files.push(path);
        }
    }
}

/// Hashes a file, and returns its modification time. Links are followed.
fn add_file(hash: &mut Context, root: &Path, name: &Path) -> Option<Timestamp> {
    let path = root.join(name);
    // Skips sockets, broken links, and files that were deleted meanwhile.
    let metadata = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    let changed = metadata
        .modified()
        .ok()
        .and_then(|time| Timestamp::try_from(time).ok())
        .unwrap_or_default();
    let text = name.as_os_str().as_encoded_bytes();
    // With lengths, so that different folders never give the same bytes.
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text);
    hash.update(&metadata.len().to_le_bytes());
    match File::open(&path) {
        Ok(file) if metadata.len() <= MAX_HASHED_FILE => add_content(hash, file),
        Ok(_) | Err(_) => hash.update(&changed.as_nanosecond().to_le_bytes()),
    }
    Some(changed)
}

fn add_content(hash: &mut Context, file: File) {
    let (mut file, mut piece) = (file.take(MAX_HASHED_FILE), vec![0; 64 * 1024]);
    while let Ok(count @ 1..) = file.read(&mut piece) {
        hash.update(&piece[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        of_folder(folder.path()).unwrap().id
    }

    #[test]
    fn the_same_files_have_the_same_version() {
        let one = id(&[("cog.yaml", "a"), ("sub/predict.py", "b")]);
        assert_eq!(one.len(), 64);
        assert_eq!(one, id(&[("sub/predict.py", "b"), ("cog.yaml", "a")]));
        assert_eq!(
            one,
            id(&[
                ("cog.yaml", "a"),
                ("sub/predict.py", "b"),
                (".git/x", "1"),
                ("sub/__pycache__/p.pyc", "2"),
                ("q.pyc", "3")
            ])
        );
    }

    #[test]
    fn ignored_files_do_not_change_the_version() {
        let rules =
            "# made by the model\n\n out \n./cache/*.bin\n**/log.txt\ndata\n!data/kept.txt\n.\n";
        let model = [
            (".dockerignore", rules),
            ("predict.py", "a"),
            ("sub/out", "b"),
            ("data/kept.txt", "c"),
        ];
        let with = |more: &[(&'static str, &'static str)]| id(&[&model[..], more].concat());
        let one = with(&[]);
        assert_eq!(
            one,
            with(&[
                ("out/a/b.png", "1"),
                ("cache/x.bin", "2"),
                ("log.txt", "3"),
                ("a/b/log.txt", "4"),
                ("data/x", "5")
            ])
        );
        for counts in [
            ("sub/out", "2"),
            ("cache/x.py", "1"),
            ("cache/a/x.bin", "1"),
            ("data/kept.txt", "2"),
            ("logs.txt", "1"),
        ] {
            assert_ne!(one, with(&[counts]), "{counts:?}");
        }
        let all = |code: &'static str| {
            id(&[
                (".dockerignore", "*"),
                ("predict.py", code),
                ("sub/x.py", code),
            ])
        };
        assert_ne!(all("a"), all("b"), "code always counts");
    }

    #[test]
    fn the_version_of_a_script_includes_the_python_files_next_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let script = folder.path().join("handler.py");
        let read = || (of_folder(&script).unwrap().id, fingerprint(&script));
        write("handler.py", "1");
        write("tools.py", "1");
        let before = read();
        write("output.bin", "1");
        assert_eq!(
            read(),
            before,
            "a file that the handler writes is not a new version"
        );
        write("tools.py", "22");
        assert!(read().0 != before.0 && read().1 != before.1);
    }

    #[test]
    fn every_change_of_a_file_changes_the_version() {
        let versions = [
            id(&[("a", "bc")]),
            id(&[("a", "cb")]),
            id(&[("ab", "c")]),
            id(&[("a", "bc"), ("b", "")]),
            id(&[("a", "b"), ("c", "")]),
        ];
        for (n, version) in versions.iter().enumerate() {
            assert_eq!(versions.iter().position(|other| other == version), Some(n));
        }
    }
}
