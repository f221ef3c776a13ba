//! The Python packages that a model needs: `python_packages`, and the lines of `python_requirements`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::usage_error::UsageError;

/// The most files that a requirements file may include.
const MAX_FILES: usize = 64;

/// The packages of one model.
#[derive(Debug, Default)]
pub(crate) struct Requirements {
    /// `python_packages`
    packages: Vec<String>,
    /// `python_requirements`
    file: Option<PathBuf>,
    /// Every requirement of both, in order.
    pub(crate) lines: Vec<Requirement>,
    /// The text of the requirements file and of the files that it includes.
    pub(super) texts: Vec<String>,
    /// Files and folders that requirements name, such as wheels.
    pub(super) paths: BTreeSet<PathBuf>,
}

/// One requirement, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    /// As in pip: `numpy==1.26.4`. Without the credentials in its URL: it is shown to users.
    pub(crate) text: String,
    /// The file, with its line.
    pub(crate) location: String,
}

impl Requirements {
    pub(super) fn read(
        dir: &Path,
        yaml: &Path,
        packages: Vec<String>,
        file: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let mut all = Self::default();
        for package in &packages {
            let (requirement, options) = split_options(package);
            all.add_paths(dir, package);
            if !requirement.is_empty() {
                all.lines.push(Requirement {
                    text: without_credentials(requirement),
                    location: format!("`python_packages` in {}", yaml.display()),
                });
            }
            for included in options.filter_map(included_file) {
                all.add_file(dir, &dir.join(included), yaml)?;
            }
        }
        if let Some(file) = &file {
            all.add_file(dir, file, yaml)?;
        }
        Ok(Self {
            packages,
            file,
            ..all
        })
    }

    /// Whether nothing has to be installed.
    pub(crate) fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.file.is_none()
    }

    /// The requirements as text.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.lines.iter().map(|line| line.text.clone()).collect()
    }

    /// The arguments for `pip install`, which must run in the folder of the model.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = Vec::new();
        for package in &self.packages {
            let (requirement, options) = split_options(package);
            if !requirement.is_empty() {
                arguments.push(requirement.into());
            }
            arguments.extend(
                options
                    .flat_map(|option| {
                        option
                            .split_once(' ')
                            .map_or_else(|| vec![option], |(name, value)| vec![name, value])
                    })
                    .map(OsString::from),
            );
        }
        if let Some(file) = &self.file {
            arguments.extend(["-r".into(), file.into()]);
        }
        arguments
    }

    /// The packages as they are written, for the content hash.
    pub(super) fn packages(&self) -> &[String] {
        &self.packages
    }

    /// The requirements that an error message of the installer mentions.
    pub(super) fn mentioned_in(&self, message: &str) -> Vec<&Requirement> {
        let words: BTreeSet<String> = message
            .split(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)))
            .map(normalized)
            .collect();
        self.lines
            .iter()
            .filter(|line| words.contains(&normalized(package_name(&line.text))))
            .collect()
    }

    fn add_file(&mut self, dir: &Path, file: &Path, named_in: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            UsageError::new(format!(
                "failed to read the requirements file `{}`: {error}",
                file.display()
            ))
            .hint(format!("correct its name in {}", named_in.display()))
        })?;
        self.texts.push(text.clone());
        if self.texts.len() > MAX_FILES {
            return Err(UsageError::new(format!(
                "`{}` includes more than {MAX_FILES} requirements files",
                file.display()
            ))
            .hint("check whether two of them include each other")
            .into());
        }
        for (number, line) in text.lines().enumerate() {
            let line = line.split(" #").next().unwrap_or_default().trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            self.add_paths(dir, line);
            let (requirement, mut options) = split_options(line);
            if !requirement.is_empty() {
                self.lines.push(Requirement {
                    text: without_credentials(requirement),
                    location: format!("{}:{}", file.display(), number + 1),
                });
            } else if let Some(included) = options.find_map(included_file) {
                // Unlike other paths, it is relative to the file that names it.
                let folder = file.parent().unwrap_or(dir);
                self.add_file(dir, &folder.join(included), file)?;
            }
        }
        Ok(())
    }

    /// Records the files and folders that a line names: they are part of what is installed.
    fn add_paths(&mut self, dir: &Path, line: &str) {
        let words = line.split(|c: char| c.is_whitespace() || c == '=' || c == '@');
        let paths = words
            .map(|word| word.strip_prefix("file://").unwrap_or(word))
            .filter(|word| word.contains(['/', '.']))
            .map(|word| dir.join(word))
            // The model's own folder changes with its code.
            .filter(|path| path.exists() && !contains(path, dir));
        self.paths.extend(paths);
    }
}

fn contains(folder: &Path, path: &Path) -> bool {
    matches!((folder.canonicalize(), path.canonicalize()), (Ok(folder), Ok(path)) if path.starts_with(&folder))
}

/// The text without the credentials in its URLs. The user of `ssh://git@…` is not secret.
pub(super) fn without_credentials(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(begin) = rest.find("://") {
        let (scheme, after) = rest.split_at(begin + "://".len());
        shown.push_str(scheme);
        let end = after.find(|c: char| c.is_whitespace() || "/?#'\"`".contains(c));
        let (authority, after) = after.split_at(end.unwrap_or(after.len()));
        let host = match authority.rsplit_once('@') {
            Some((user, _)) if scheme.ends_with("ssh://") && !user.contains(':') => authority,
            Some((_, host)) => host,
            None => authority,
        };
        shown.push_str(host);
        rest = after;
    }
    shown + rest
}

/// The requirement, and the options after it or instead of it: `--find-links wheels`, `-r more.txt`.
fn split_options(line: &str) -> (&str, impl Iterator<Item = &str>) {
    let line = line.trim();
    let begin = if line.starts_with('-') {
        Some(0)
    } else {
        line.find(" -")
    };
    let (requirement, options) = line.split_at(begin.unwrap_or(line.len()));
    // An option begins at a `-` after a space.
    let mut rest = options.trim();
    let options = std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = rest[1..].find(" -").map_or(rest.len(), |end| end + 1);
        let (option, after) = rest.split_at(end);
        rest = after.trim_start();
        Some(option.trim())
    });
    (requirement.trim(), options)
}

/// The file of `-r FILE` or `-c FILE`.
fn included_file(option: &str) -> Option<&str> {
    ["--requirement", "--constraint", "-r", "-c"]
        .iter()
        .find_map(|name| option.strip_prefix(name))
        .map(|file| file.trim_start_matches('=').trim())
        .filter(|file| !file.is_empty())
}

/// The name in a requirement such as `numpy[all]>=1; python_version > "3"`.
fn package_name(requirement: &str) -> &str {
    let end = requirement
        .find(|c: char| !(c.is_alphanumeric() || "-_.".contains(c)))
        .unwrap_or(requirement.len());
    &requirement[..end]
}

/// A name as package indexes compare it.
fn normalized(name: &str) -> String {
    name.trim_matches(['.', '-', '_'])
        .to_lowercase()
        .replace(['_', '.'], "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_urls_are_not_shown() {
        for (text, shown) in [
            (
                "a @ git+https://x:TOKEN@example.com/a.git@v1",
                "a @ git+https://example.com/a.git@v1",
            ),
            (
                "Looking in indexes: https://TOKEN@example.com/simple, https://u:p@w@other:8080",
                "Looking in indexes: https://example.com/simple, https://other:8080",
            ),
            (
                "fatal: no password for 'https://x:TOKEN@example.com'",
                "fatal: no password for 'https://example.com'",
            ),
            (
                "a @ git+ssh://git@example.com/a.git",
                "a @ git+ssh://git@example.com/a.git",
            ),
            (
                "a @ git+ssh://git:TOKEN@example.com/a.git",
                "a @ git+ssh://example.com/a.git",
            ),
            ("numpy==1.26.4", "numpy==1.26.4"),
            (
                "mail@example.com, see https://",
                "mail@example.com, see https://",
            ),
        ] {
            assert_eq!(without_credentials(text), shown);
        }
    }

    #[test]
    fn requirements_are_installed_with_their_credentials_and_shown_without() {
        let package = "a @ https://x:TOKEN@example.com/a.whl";
        let requirements = read(
            &[package],
            &[("r.txt", "b @ https://TOKEN@example.com/b.whl\n")],
        );
        let requirements = requirements.unwrap();
        assert_eq!(
            requirements.texts(),
            [
                "a @ https://example.com/a.whl",
                "b @ https://example.com/b.whl"
            ]
        );
        assert_eq!(requirements.arguments()[0], package);
    }

    fn read(packages: &[&str], files: &[(&str, &str)]) -> anyhow::Result<Requirements> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let file = files.first().map(|(name, _)| dir.path().join(name));
        let packages = packages.iter().map(|&package| package.to_owned()).collect();
        Requirements::read(dir.path(), Path::new("cog.yaml"), packages, file)
    }

    #[test]
    fn options_in_the_list_of_packages_become_arguments() {
        let requirements = read(
            &[
                "torch==2.1 --extra-index-url https://x/y",
                "--pre",
                "a-b[c] >= 1 ; python_version > '3'",
            ],
            &[],
        )
        .unwrap();
        assert_eq!(
            requirements.arguments(),
            [
                "torch==2.1",
                "--extra-index-url",
                "https://x/y",
                "--pre",
                "a-b[c] >= 1 ; python_version > '3'"
            ]
        );
        assert_eq!(requirements.texts().len(), 2);
    }

    #[test]
    fn included_files_are_read() {
        let requirements = read(
            &[],
            &[
                (
                    "a.txt",
                    "# comment\nx==1  # why\n-r b.txt\n--find-links .\n",
                ),
                ("b.txt", "y==2\n"),
            ],
        )
        .unwrap();
        assert_eq!(requirements.texts(), ["x==1", "y==2"]);
        assert!(requirements.lines[0].location.ends_with("a.txt:2"));
        assert_eq!(requirements.texts.len(), 2);
    }

    #[test]
    fn files_that_include_each_other_are_an_error() {
        let error = read(&[], &[("a.txt", "-r b.txt\n"), ("b.txt", "-r a.txt\n")]).unwrap_err();
        assert!(error.to_string().contains("includes more than"), "{error}");
    }

    #[test]
    fn the_requirement_in_an_error_message_is_found() {
        let requirements = read(&["Big_Package==9.9", "package==1", "other"], &[]).unwrap();
        let found = |message| {
            let lines = requirements.mentioned_in(message);
            lines
                .iter()
                .map(|line| line.text.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found("ERROR: No matching distribution found for big-package==9.9"),
            ["Big_Package==9.9"]
        );
        assert_eq!(found("no network"), Vec::<&str>::new());
    }
}
