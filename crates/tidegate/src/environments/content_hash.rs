//! The hash by which an environment is stored: two models with the same needs share an environment.

use std::path::Path;

use ring::digest::{Context, SHA256};

use super::build_spec::BuildSpec;
use super::interpreter;
use super::python_version::PythonVersion;
use crate::source_version;

/// Changed when environments of earlier versions cannot be used any more.
const FORMAT: &str = "tidegate environment 1";
/// The number of hexadecimal digits.
const DIGITS: usize = 32;

/// The hash of what a model needs: the version of Python, its packages, and the content of the files that
/// they name. A model that asks for no version needs that of the interpreter `python`.
pub(super) fn of(spec: &BuildSpec, python: &Path) -> String {
    let mut hash = Fields(Context::new(&SHA256));
    hash.add(FORMAT.as_bytes());
    hash.add(std::env::consts::ARCH.as_bytes());
    let default = || interpreter::version_of(python).map(PythonVersion::without_patch);
    let version = spec.python_version.or_else(default);
    let version = version.map(|version| version.to_string());
    hash.add(version.unwrap_or_default().as_bytes());
    for package in spec.requirements.packages() {
        hash.add(package.as_bytes());
    }
    hash.add(b"");
    for text in &spec.requirements.texts {
        hash.add(text.as_bytes());
    }
    hash.add(b"");
    for path in &spec.requirements.paths {
        hash.add(
            path.strip_prefix(&spec.dir)
                .unwrap_or(path)
                .as_os_str()
                .as_encoded_bytes(),
        );
        hash.add(&content_of(path));
    }
    let digest = hash.0.finish();
    let digits: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    digits[..DIGITS].to_owned()
}

struct Fields(Context);

impl Fields {
    /// With its length, so that no two lists of fields have the same bytes.
    fn add(&mut self, field: &[u8]) {
        self.0.update(&(field.len() as u64).to_le_bytes());
        self.0.update(field);
    }
}

/// What identifies the content of a file or folder; nothing if it cannot be read.
fn content_of(path: &Path) -> Vec<u8> {
    if path.is_dir() {
        let version = source_version::of_package(path);
        return version
            .map(|version| version.id.into_bytes())
            .unwrap_or_default();
    }
    let bytes = std::fs::read(path).unwrap_or_default();
    ring::digest::digest(&SHA256, &bytes).as_ref().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(files: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        of(&BuildSpec::read(dir.path()).unwrap(), Path::new("none"))
    }

    #[test]
    fn a_model_without_a_version_needs_that_of_the_interpreter() {
        let dir = tempfile::tempdir().unwrap();
        let hash = |yaml: &str, version: &str| {
            std::fs::write(dir.path().join("cog.yaml"), yaml).unwrap();
            let python = interpreter::tests::python(dir.path(), version);
            of(&BuildSpec::read(dir.path()).unwrap(), &python)
        };
        let any = "build:\n  python_packages: [a]\n";
        assert_eq!(hash(any, "3.98.2"), hash(any, "3.98.3"));
        assert_ne!(hash(any, "3.98.2"), hash(any, "3.99.0"));
        let fixed = "build:\n  python_version: '3.98'\n  python_packages: [a]\n";
        assert_eq!(hash(fixed, "3.98.2"), hash(fixed, "3.99.0"));
        assert_eq!(hash(fixed, "3.99.0"), hash(any, "3.98.2"));
    }

    #[test]
    fn only_what_is_installed_counts() {
        let base = hash(&[("cog.yaml", "build:\n  python_packages: [a==1, b==2]\n")]);
        let same =
            "predict: p.py:P\nbuild:\n  gpu: true\n  python_packages:\n    - a==1\n    - b==2\n";
        assert_eq!(hash(&[("cog.yaml", same), ("p.py", "1")]), base);
        for other in [
            "build:\n  python_packages: [a==1, b==3]\n",
            "build:\n  python_packages: ['a==1b==2']\n",
            "build:\n  python_version: '3.12'\n  python_packages: [a==1, b==2]\n",
        ] {
            assert_ne!(hash(&[("cog.yaml", other)]), base, "{other}");
        }
    }

    #[test]
    fn what_building_a_package_writes_into_its_folder_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let hash = || of(&BuildSpec::read(dir.path()).unwrap(), Path::new("none"));
        write("cog.yaml", "build:\n  python_requirements: r.txt\n");
        write("r.txt", "-e ./pkg\n");
        write("pkg/src/one/a.py", "1");
        let before = hash();
        write("pkg/build/lib/one/a.py", "1");
        write("pkg/dist/one-1.whl", "1");
        write("pkg/src/one.egg-info/SOURCES.txt", "1");
        write("pkg/one.egg-info/PKG-INFO", "1");
        write("pkg/src/one/__pycache__/a.pyc", "1");
        assert_eq!(hash(), before);
        write("pkg/src/one/build/b.py", "1");
        assert_ne!(hash(), before, "a module may be named `build`");
    }

    #[test]
    fn the_content_of_requirements_and_wheels_counts() {
        let yaml = ("cog.yaml", "build:\n  python_requirements: r.txt\n");
        let text = ("r.txt", "./a.whl\n");
        let base = hash(&[yaml, text, ("a.whl", "1")]);
        assert_eq!(hash(&[yaml, text, ("a.whl", "1")]), base);
        assert_ne!(hash(&[yaml, text, ("a.whl", "2")]), base);
        assert_ne!(
            hash(&[yaml, ("r.txt", "./a.whl\nb\n"), ("a.whl", "1")]),
            base
        );
    }
}
