//! Chooses one of several models by its name.

use std::path::Path;

use super::names::full_name;
use super::serve_target::ServeTarget;
use crate::cli::ModelArgs;
use crate::compat::CogEnv;
use crate::model_source::ModelSource;
use crate::usage_error::UsageError;

/// Chooses from `names`, which are full names, the model `wanted`, or the only one. `place` is where the
/// models are.
pub(crate) fn choose<'a>(
    names: &[&'a str],
    wanted: Option<&str>,
    place: &str,
) -> Result<&'a str, UsageError> {
    // A short name may be the last part of another one, too.
    if let Some(exact) = names.iter().find(|name| Some(**name) == wanted) {
        return Ok(exact);
    }
    let matches =
        |name: &&&str| wanted.is_none_or(|wanted| name.rsplit('/').next() == Some(wanted));
    let found: Vec<&&str> = names.iter().filter(matches).collect();
    match (&found[..], wanted) {
        ([only], _) => Ok(**only),
        ([], Some(wanted)) => Err(UsageError::new(format!("{place} has no model `{wanted}`"))
            .hint(format!("the models are {}", names.join(", ")))),
        _ => Err(
            UsageError::new(format!("{place} has several models")).hint(format!(
                "choose one with --model: {}",
                found
                    .iter()
                    .map(|name| **name)
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
        ),
    }
}

/// The model in a folder or a script; in a folder of models, the model `wanted`, or the only one.
pub(crate) fn read_one(
    path: &Path,
    wanted: Option<&str>,
    args: &ModelArgs,
    env: &CogEnv,
) -> anyhow::Result<ModelSource> {
    let mut models = read_all(path, args, env)?;
    let names: Vec<&str> = models.iter().map(|(name, _)| name.as_str()).collect();
    let place = format!("`{}`", path.display());
    let chosen = choose(&names, wanted, &place)?.to_owned();
    let index = models.iter().position(|(name, _)| *name == chosen);
    Ok(models.swap_remove(index.unwrap_or(0)).1)
}

/// The model in a folder or a script, or all models in a folder of models, with their full names. An
/// unreadable one is skipped if there are others.
pub(crate) fn read_all(
    path: &Path,
    args: &ModelArgs,
    env: &CogEnv,
) -> anyhow::Result<Vec<(String, ModelSource)>> {
    let target = ServeTarget::of(path);
    let mut models = Vec::new();
    let mut errors = Vec::new();
    for folder in target.folders() {
        match ModelSource::read(&folder, args, env) {
            Ok(model) => models.push((full_name(&model, target.root(), None), model)),
            Err(error) => errors.push((folder, error)),
        }
    }
    if models.is_empty() && !errors.is_empty() {
        return Err(errors.swap_remove(0).1);
    }
    for (folder, error) in errors {
        tracing::error!(folder = %folder.display(), error = format!("{error:#}"), "failed to read model, skipping it");
    }
    Ok(models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_chosen_by_its_full_name_or_its_last_part() {
        let names = ["ann/echo", "bob/echo", "bob/other"];
        let chosen = |wanted| choose(&names, wanted, "here").map_err(|error| error.to_string());
        assert_eq!(chosen(Some("bob/echo")).as_deref(), Ok("bob/echo"));
        assert_eq!(chosen(Some("other")).as_deref(), Ok("bob/other"));
        assert_eq!(
            chosen(Some("echo")),
            Err("here has several models".to_owned())
        );
        assert_eq!(
            chosen(Some("gone")),
            Err("here has no model `gone`".to_owned())
        );
        assert_eq!(chosen(None), Err("here has several models".to_owned()));
        assert_eq!(
            choose(&["echo", "ann/echo"], Some("echo"), "here").ok(),
            Some("echo")
        );
        assert_eq!(choose(&names[..1], None, "here").ok(), Some("ann/echo"));
    }
}
