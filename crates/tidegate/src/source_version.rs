//! The version of a model: a hash over its folder, so that two servers with the same files have the same.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use jiff::Timestamp;
use ring::digest::{Context, SHA256};

/// Larger files count by size and time of change only: weights would take minutes to read.
const READ_UP_TO: u64 = 64 * 1024 * 1024;

/// What is known of a model's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceVersion {
    /// 64 hexadecimal digits.
    pub(crate) id: String,
    /// When one of them was changed last.
    pub(crate) changed_at: Timestamp,
}

/// Reads the files of a model. Hidden folders, compiled Python and what `.dockerignore` names do not count.
pub(crate) fn of_folder(folder: &Path) -> io::Result<SourceVersion> {
    let (folder, files) = files_of(folder)?;
    let (mut hash, mut changed_at) = (Context::new(&SHA256), Timestamp::UNIX_EPOCH);
    for name in &files {
        let Some(changed) = add(&mut hash, &folder, name) else {
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
    Ok(SourceVersion { id, changed_at })
}

/// Tells one state of the files from another without reading them.
pub(crate) fn fingerprint(folder: &Path) -> u64 {
    let (folder, files) = files_of(folder).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    for name in files {
        let about = fs::metadata(folder.join(&name)).ok();
        (
            name,
            about.as_ref().map(fs::Metadata::len),
            about.and_then(|about| about.modified().ok()),
        )
            .hash(&mut hasher);
    }
    hasher.finish()
}

/// The files of a model, by name. Those of a script are the Python files beside it: its folder may hold
/// anything, and be as large as a home.
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
        let ignored = ignored_in(folder);
        files.retain(|name| {
            is_at_the_core(name) || !ignored.matched_path_or_any_parents(name, false).is_ignore()
        });
    }
    files.sort();
    Ok((folder.to_owned(), files))
}

/// Files that make a model what it is, whatever `.dockerignore` says.
fn is_at_the_core(name: &Path) -> bool {
    let is_at_the_top = name.parent() == Some(Path::new(""));
    is_at_the_top
        && (name.extension().is_some_and(|kind| kind == "py")
            || name == "cog.yaml"
            || name == ".dockerignore")
}

/// What `.dockerignore` names: Cog leaves it out of the image, so it is no part of the model.
fn ignored_in(folder: &Path) -> Gitignore {
    let text = fs::read_to_string(folder.join(".dockerignore")).unwrap_or_default();
    let mut rules = GitignoreBuilder::new("");
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
    {
        let (not, place) = line
            .strip_prefix('!')
            .map_or(("", line), |place| ("!", place.trim()));
        let place = place.trim_start_matches("./").trim_matches('/');
        // Unlike Git, Docker counts every name from the top folder.
        if !matches!(place, "" | ".")
            && let Err(error) = rules.add_line(None, &format!("{not}/{place}"))
        {
            tracing::warn!(folder = %folder.display(), rule = line, %error, "a rule in .dockerignore cannot be read");
        }
    }
    rules.build().unwrap_or_else(|_| Gitignore::empty())
}

/// What cannot be read does not count: the model can do nothing with it either.
fn collect(entries: fs::ReadDir, root: &Path, below: &Path, files: &mut Vec<PathBuf>) {
    for entry in entries.flatten() {
        let (name, Ok(kind)) = (entry.file_name(), entry.file_type()) else {
            continue;
        };
        let (text, place) = (name.to_string_lossy(), below.join(&name));
        if kind.is_dir() {
            if !text.starts_with('.')
                && text != "__pycache__"
                && let Ok(entries) = fs::read_dir(root.join(&place))
            {
                collect(entries, root, &place, files);
            }
        } else if !text.ends_with(".pyc") {
            files.push(place);
        }
    }
}

/// Adds a file; links count by what they lead to, unless that is no file. Says when it was changed.
fn add(hash: &mut Context, root: &Path, name: &Path) -> Option<Timestamp> {
    let path = root.join(name);
    // Others are a socket, a link to nowhere, a file that went while we looked.
    let about = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
    let changed = about
        .modified()
        .ok()
        .and_then(|time| Timestamp::try_from(time).ok())
        .unwrap_or_default();
    let text = name.as_os_str().as_encoded_bytes();
    // With their lengths, so that no two folders give the same bytes.
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text);
    hash.update(&about.len().to_le_bytes());
    match File::open(&path) {
        Ok(file) if about.len() <= READ_UP_TO => add_content(hash, file),
        Ok(_) | Err(_) => hash.update(&changed.as_nanosecond().to_le_bytes()),
    }
    Some(changed)
}

fn add_content(hash: &mut Context, file: File) {
    let (mut file, mut piece) = (file.take(READ_UP_TO), vec![0; 64 * 1024]);
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
    fn what_is_not_in_the_image_does_not_count() {
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
        assert_ne!(all("a"), all("b"), "the code counts in any case");
    }

    #[test]
    fn a_script_is_what_is_written_in_python_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let script = folder.path().join("handler.py");
        let look = || (of_folder(&script).unwrap().id, fingerprint(&script));
        write("handler.py", "1");
        write("tools.py", "1");
        let before = look();
        write("output.bin", "1");
        assert_eq!(
            look(),
            before,
            "what a handler leaves beside itself is no new version"
        );
        write("tools.py", "22");
        assert!(look().0 != before.0 && look().1 != before.1);
    }

    #[test]
    fn every_change_of_a_file_is_another_version() {
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
