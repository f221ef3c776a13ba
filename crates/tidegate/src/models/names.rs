//! The full name of a model, `owner/name`, from its `cog.yaml` or its folder.

use std::path::Path;

use crate::model_source::ModelSource;

/// The owner of models without one.
const DEFAULT_OWNER: &str = "local";

/// The full name of a model: from `owner`, then `image` in `cog.yaml`, then the folder `root/owner/name`
/// or `root/name`.
pub(crate) fn full_name(model: &ModelSource, root: Option<&Path>, owner: Option<&str>) -> String {
    let (image_owner, image_name) = model.image.as_deref().map(parse_image).unwrap_or_default();
    let folder = |path: &Path| path.file_name().map(|name| slug(&name.to_string_lossy()));
    let parent = model
        .dir
        .parent()
        .filter(|parent| root.is_some_and(|root| *parent != root));
    let owner = owner
        .map(str::to_owned)
        .or(image_owner)
        .or_else(|| folder(parent?))
        .unwrap_or_else(|| DEFAULT_OWNER.to_owned());
    let name = image_name
        .or_else(|| folder(&model.dir))
        .unwrap_or_else(|| slug(""));
    format!("{owner}/{name}")
}

/// Owner and name from an image name such as `r8.im/owner/name:tag`.
fn parse_image(image: &str) -> (Option<String>, Option<String>) {
    let image = image.split('@').next().unwrap_or_default();
    let mut parts = image.rsplit('/');
    let name = parts
        .next()
        .and_then(|name| name.split(':').next())
        .filter(|name| !name.is_empty());
    // A part with a dot or a port is a registry.
    let owner = parts
        .next()
        .filter(|owner| !owner.is_empty() && !owner.contains(['.', ':']) && *owner != "localhost");
    (owner.map(slug), name.map(slug))
}

/// The name in lower case, with `-` for characters that do not belong in a path.
pub(crate) fn slug(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = name.chars().map(plain).collect();
    match name.trim_matches(['-', '.']) {
        "" => "model".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ModeArg;

    fn model(dir: &str, image: Option<&str>) -> ModelSource {
        ModelSource {
            dir: dir.into(),
            script: None,
            predictor_ref: "predict.py:Predictor".to_owned(),
            train_ref: None,
            mode: ModeArg::Predict,
            concurrency: None,
            env: Vec::new(),
            gpu: None,
            image: image.map(str::to_owned),
        }
    }

    #[test]
    fn names_of_folders_become_names_of_models() {
        for (folder, name) in [
            ("hello", "hello"),
            ("My Model", "my-model"),
            ("a_b.c-1", "a_b.c-1"),
            ("..", "model"),
            ("été", "t"),
        ] {
            assert_eq!(slug(folder), name);
        }
    }

    #[test]
    fn the_flag_precedes_the_image_and_the_image_the_folder() {
        let root = Some(Path::new("/models"));
        assert_eq!(
            full_name(&model("/models/hello", None), root, None),
            "local/hello"
        );
        assert_eq!(
            full_name(&model("/models/ann/hello", None), root, None),
            "ann/hello"
        );
        assert_eq!(
            full_name(
                &model("/models/ann/hello", Some("r8.im/bob/sdxl")),
                root,
                None
            ),
            "bob/sdxl"
        );
        assert_eq!(
            full_name(&model("/models/ann/hello", Some("sdxl:v1")), root, None),
            "ann/sdxl"
        );
        assert_eq!(
            full_name(
                &model("/models/ann/hello", Some("r8.im/bob/sdxl")),
                root,
                Some("eve")
            ),
            "eve/sdxl"
        );
        assert_eq!(
            full_name(&model("/somewhere/hello", None), None, None),
            "local/hello"
        );
    }

    #[test]
    fn an_image_has_an_owner_or_a_registry() {
        let parts = |image| {
            let (owner, name) = parse_image(image);
            (owner.unwrap_or_default(), name.unwrap_or_default())
        };
        for (image, owner, name) in [
            ("r8.im/ann/echo", "ann", "echo"),
            ("r8.im/ann/echo:2", "ann", "echo"),
            ("ann/echo@sha256:00", "ann", "echo"),
            ("localhost:5000/echo", "", "echo"),
            ("r8.im/echo", "", "echo"),
            ("echo", "", "echo"),
            ("", "", ""),
        ] {
            assert_eq!(parts(image), (owner.to_owned(), name.to_owned()), "{image}");
        }
    }
}
