//! Whether a path is one model or a folder of models.

use std::path::{Path, PathBuf};

use crate::model_source::{COG_YAML, is_handler_folder, project_dir};

/// What `tidegate serve DIR` serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServeTarget {
    /// The model in this folder.
    Single(PathBuf),
    /// The models in the subfolders of this folder.
    Folder(PathBuf),
}

impl ServeTarget {
    /// A folder that is no model and contains models is a folder of models. A subfolder of a model is the
    /// model. The paths of folders are absolute, because installers and children run in other folders; that
    /// of a script stays as it was given, because the script can read it.
    pub(crate) fn of(dir: &Path) -> Self {
        let is_model = |dir: &Path| dir.join(COG_YAML).exists() || is_handler_folder(dir);
        match dir.canonicalize() {
            Ok(root) if !is_model(&root) && !models_in(&root).is_empty() => Self::Folder(root),
            Ok(root) if root.is_dir() => Self::Single(project_dir(&root)),
            Ok(_) | Err(_) => Self::Single(dir.to_owned()),
        }
    }

    /// The folders of the models, sorted by name.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        match self {
            Self::Single(dir) => vec![dir.clone()],
            Self::Folder(root) => models_in(root),
        }
    }

    /// The folder of models, if there are several.
    pub(crate) fn root(&self) -> Option<&Path> {
        match self {
            Self::Single(_) => None,
            Self::Folder(root) => Some(root),
        }
    }
}

/// The models in `root/name` and `root/owner/name`.
fn models_in(root: &Path) -> Vec<PathBuf> {
    let mut models = Vec::new();
    for folder in folders_in(root) {
        if is_model_folder(&folder) {
            models.push(folder);
        } else {
            models.extend(
                folders_in(&folder)
                    .into_iter()
                    .filter(|folder| is_model_folder(folder)),
            );
        }
    }
    models
}

fn is_model_folder(folder: &Path) -> bool {
    folder.join(COG_YAML).is_file() || is_handler_folder(folder)
}

/// The subfolders, without hidden ones.
fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let visible = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let mut folders: Vec<PathBuf> = visible
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let path = folder.path().canonicalize().unwrap();
        (folder, path)
    }

    #[test]
    fn a_folder_with_a_cog_yaml_is_one_model_even_if_it_contains_others() {
        let (_guard, root) = with(&["cog.yaml", "other/cog.yaml"]);
        assert_eq!(ServeTarget::of(&root), ServeTarget::Single(root));
    }

    #[test]
    fn models_are_one_or_two_folders_down() {
        let (_guard, root) = with(&[
            "b/cog.yaml",
            "ann/a/cog.yaml",
            "ann/README.md",
            ".hidden/cog.yaml",
            "x/y/z/cog.yaml",
            "empty/file",
            "c/handler.py",
        ]);
        let target = ServeTarget::of(&root);
        assert_eq!(target.root(), Some(root.as_path()));
        assert_eq!(
            target.folders(),
            [root.join("ann/a"), root.join("b"), root.join("c")]
        );
    }

    #[test]
    fn a_folder_with_a_handler_is_one_model() {
        let (_guard, root) = with(&["handler.py", "other/cog.yaml"]);
        assert_eq!(ServeTarget::of(&root), ServeTarget::Single(root));
    }

    #[test]
    fn a_subfolder_of_a_model_is_the_model() {
        let (_guard, root) = with(&["cog.yaml", "some/sub/file"]);
        assert_eq!(
            ServeTarget::of(&root.join("some/sub")),
            ServeTarget::Single(root)
        );
    }

    #[test]
    fn a_folder_without_models_is_one_model_without_a_cog_yaml() {
        let (_guard, root) = with(&["predict.py"]);
        assert_eq!(ServeTarget::of(&root), ServeTarget::Single(root));
    }
}
