//! A model's folder or script, with the settings of its `cog.yaml` and of the command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::cli::{ModeArg, ModelArgs};
use crate::cog_yaml;
use crate::cog_yaml_keys;
use crate::compat::CogEnv;
use crate::predictor_file::is_cog_model;
use crate::shell;
use crate::usage_error::UsageError;

/// A model before its code is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelSource {
    /// Absolute.
    pub(crate) dir: PathBuf,
    /// The Python file, if the model is a script; absolute.
    pub(crate) script: Option<PathBuf>,
    pub(crate) predictor_ref: String,
    pub(crate) train_ref: Option<String>,
    /// The function that predictions call.
    pub(crate) mode: ModeArg,
    /// `concurrency.max`
    pub(crate) concurrency: Option<u32>,
    /// `environment`
    pub(crate) env: Vec<(OsString, OsString)>,
    /// `image`
    pub(crate) image: Option<String>,
    /// `build.gpu`
    pub(crate) gpu: Option<bool>,
}

/// The file that makes a folder a model.
pub(crate) const COG_YAML: &str = "cog.yaml";
/// The script with a Runpod handler that makes a folder without `cog.yaml` a model.
const HANDLER: &str = "handler.py";
/// The files of which each makes a folder a model.
const MODEL_FILES: [&str; 2] = [COG_YAML, HANDLER];
/// The name in the reference of a script, which registers its handler when it runs.
const SCRIPT: &str = "__main__";

impl ModelSource {
    /// Reads the folder. `args` takes precedence over `cog.yaml`, and `cog.yaml` over `env`.
    pub(crate) fn read(dir: &Path, args: &ModelArgs, env: &CogEnv) -> anyhow::Result<Self> {
        if dir.is_file() {
            return Self::script(dir, args);
        }
        let dir = existing_dir(dir)?;
        if is_handler_folder(&dir) && args.predict.is_none() && env.predictor_ref.is_none() {
            return Self::handler_folder(dir, args);
        }
        if let Some(word) = args.script_args.first() {
            let message = format!(
                "`{word}` after `--` is for a script, and `{}` is a model folder",
                dir.display()
            );
            return Err(UsageError::new(message)
                .hint("remove `--` and the arguments after it")
                .into());
        }
        let file = dir.join(COG_YAML);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(error).with_context(|| format!("failed to read `{}`", file.display()));
            }
        };
        let yaml = text
            .as_deref()
            .map(|text| cog_yaml::parse(&file, text))
            .transpose()?
            .unwrap_or_default();
        if let (Some(run), Some(predict)) = (&yaml.run, &yaml.predict)
            && run != predict
        {
            let text = text.as_deref().unwrap_or_default();
            let line = cog_yaml_keys::lines_of(text, "predict").next();
            let location = line.map_or_else(String::new, |line| format!(":{line}"));
            let message = format!(
                "{}{location}: there are both `run: {run}` and `predict: {predict}`",
                file.display()
            );
            return Err(UsageError::new(message)
                .hint("keep one of them; `run` is the newer name")
                .into());
        }
        let train_ref = args
            .train
            .clone()
            .or(yaml.train)
            .or_else(|| env.train_ref.clone());
        let given = args
            .predict
            .clone()
            .or(yaml.run)
            .or(yaml.predict)
            .or_else(|| env.predictor_ref.clone());
        let (predictor_ref, mode) = match (given, &train_ref) {
            (Some(given), _) => (given, args.mode),
            // Predictions of a model that can only be trained call the training function.
            (None, Some(train)) => (train.clone(), ModeArg::Train),
            (None, None) => return Err(no_predictor(&dir, text.is_some()).into()),
        };
        for reference in [Some(&predictor_ref), train_ref.as_ref()]
            .into_iter()
            .flatten()
        {
            check_ref(&dir, reference, text.as_deref())?;
        }
        let env =
            cog_yaml::environment(yaml.environment, &file, text.as_deref().unwrap_or_default())?;
        Ok(Self {
            concurrency: yaml
                .concurrency
                .and_then(|concurrency| concurrency.max)
                .filter(|max| *max > 0),
            dir,
            script: None,
            predictor_ref,
            train_ref,
            mode,
            env,
            image: yaml.image,
            gpu: yaml.build.gpu,
        })
    }

    /// A folder with a script that calls `runpod.serverless.start`. Unlike a script that is named
    /// itself, it runs in its own folder, and every file of the folder belongs to it.
    fn handler_folder(dir: PathBuf, args: &ModelArgs) -> anyhow::Result<Self> {
        let script = dir.join(HANDLER);
        refuse_model_flags(args, &script)?;
        Ok(Self {
            script: None,
            predictor_ref: format!("{HANDLER}:{SCRIPT}"),
            train_ref: None,
            mode: ModeArg::Predict,
            concurrency: None,
            env: script_env(args, &script, Some(dir.clone())),
            image: None,
            gpu: None,
            dir,
        })
    }

    /// A Python file that calls `runpod.serverless.start`.
    fn script(given: &Path, args: &ModelArgs) -> anyhow::Result<Self> {
        let path = given
            .canonicalize()
            .with_context(|| format!("failed to read `{}`", given.display()))?;
        let (Some(dir), Some(file)) = (path.parent(), path.file_name()) else {
            return Err(not_a_folder(&path).into());
        };
        if path.extension().is_none_or(|extension| extension != "py") {
            return Err(not_a_folder(&path).into());
        }
        if std::fs::read_to_string(&path).is_ok_and(|text| is_cog_model(&text)) {
            return Err(needs_cog_yaml(&path, dir).into());
        }
        refuse_model_flags(args, &path)?;
        Ok(Self {
            dir: dir.to_owned(),
            script: Some(path.clone()),
            predictor_ref: format!("{}:{SCRIPT}", file.to_string_lossy()),
            train_ref: None,
            mode: ModeArg::Predict,
            concurrency: None,
            env: script_env(args, given, std::env::current_dir().ok()),
            image: None,
            gpu: None,
        })
    }

    /// The script or the folder.
    pub(crate) fn path(&self) -> &Path {
        self.script.as_deref().unwrap_or(&self.dir)
    }

    /// Whether it is a script with a Runpod handler.
    pub(crate) fn is_script(&self) -> bool {
        self.predictor_ref.rsplit(':').next() == Some(SCRIPT)
    }
}

/// The folder of the model that `dir` is in: `dir` itself or the nearest folder above it that has a
/// `cog.yaml`. `dir`, if there is none.
pub(crate) fn project_dir(dir: &Path) -> PathBuf {
    let Ok(start) = dir.canonicalize() else {
        return dir.to_owned();
    };
    let is_model = |folder: &&Path| MODEL_FILES.iter().any(|file| folder.join(file).is_file());
    match start.ancestors().find(is_model) {
        Some(found) if start.is_dir() && found != start => found.to_owned(),
        Some(_) | None => dir.to_owned(),
    }
}

/// Whether a folder is a model because of its handler.
pub(crate) fn is_handler_folder(dir: &Path) -> bool {
    !dir.join(COG_YAML).exists() && dir.join(HANDLER).is_file()
}

/// Refuses flags that name the function of a model folder.
fn refuse_model_flags(args: &ModelArgs, script: &Path) -> Result<(), UsageError> {
    let flag = match args {
        ModelArgs {
            predict: Some(_), ..
        } => "--predict",
        ModelArgs { train: Some(_), .. } => "--train",
        ModelArgs {
            mode: ModeArg::Train,
            ..
        } => "--mode train",
        ModelArgs { .. } => return Ok(()),
    };
    let message = format!(
        "{flag} is for a model folder, and `{}` is a script",
        script.display()
    );
    Err(UsageError::new(message).hint(
        "a script registers its handler itself: `runpod.serverless.start({\"handler\": handler})`",
    ))
}

/// The variables from which `tidegate.handler.entry` configures a script: `sys.argv[0]`, the working
/// directory, and its arguments.
fn script_env(args: &ModelArgs, name: &Path, folder: Option<PathBuf>) -> Vec<(OsString, OsString)> {
    let mut env = vec![("TIDEGATE_SCRIPT_NAME".into(), name.into())];
    if let Some(folder) = folder {
        env.push(("TIDEGATE_SCRIPT_FOLDER".into(), folder.into()));
    }
    if args.rp_debugger {
        env.push(("TIDEGATE_RP_DEBUGGER".into(), "1".into()));
    }
    let level = args
        .rp_log_level
        .iter()
        .flat_map(|level| ["--rp_log_level", level]);
    let words: Vec<&str> = level
        .chain(args.script_args.iter().map(String::as_str))
        .collect();
    if !words.is_empty() {
        let words = serde_json::to_string(&words).expect("strings serialize to JSON");
        env.push(("TIDEGATE_SCRIPT_ARGS".into(), words.into()));
    }
    env
}

fn existing_dir(dir: &Path) -> anyhow::Result<PathBuf> {
    let found = dir.canonicalize().map_err(|error| {
        UsageError::new(format!("there is no folder `{}`: {error}", dir.display()))
            .hint("give the folder that contains the cog.yaml of the model")
    })?;
    if found.is_dir() {
        return Ok(found);
    }
    Err(not_a_folder(&found).into())
}

fn not_a_folder(path: &Path) -> UsageError {
    let hint = path.parent().map_or_else(String::new, |parent| {
        format!("tidegate serve {}", shell::word(parent))
    });
    UsageError::new(format!(
        "`{}` is neither a folder nor a Python file",
        path.display()
    ))
    .hint(hint)
}

/// The code of a Cog model was given instead of its folder.
fn needs_cog_yaml(file: &Path, dir: &Path) -> UsageError {
    let (file, has_yaml) = (file.display(), dir.join(COG_YAML).is_file());
    let command = format!("tidegate init {}", shell::word(dir));
    let dir = dir.display();
    let message = format!(
        "`{file}` is the code of a Cog model, which needs a cog.yaml next to it; only a script that calls \
         `runpod.serverless.start` needs none"
    );
    UsageError::new(message).hint(if has_yaml {
        format!("give the folder, which has a cog.yaml: `{dir}`")
    } else {
        format!("`{command}` writes the cog.yaml; then give the folder: `{dir}`")
    })
}

fn no_predictor(dir: &Path, has_yaml: bool) -> UsageError {
    let example = ["run.py", "predict.py"]
        .into_iter()
        .find(|name| dir.join(name).is_file());
    let file = example.unwrap_or("predict.py");
    let name = if file == "run.py" {
        "Runner"
    } else {
        "Predictor"
    };
    if has_yaml {
        let message = format!("`{}` names no predictor", dir.join("cog.yaml").display());
        return UsageError::new(message).hint(format!("add the line `predict: \"{file}:{name}\"`"));
    }
    let message = format!(
        "there is no cog.yaml and no handler.py in `{}`",
        dir.display()
    );
    if example.is_some() {
        return UsageError::new(message).hint(format!(
            "`tidegate init {0}` writes the cog.yaml; without one: tidegate serve {0} --predict {file}:{name}",
            shell::word(dir)
        ));
    }
    UsageError::new(message).hint(format!(
        "`tidegate init {}` creates an example model",
        shell::word(dir)
    ))
}

/// Checks that the file of a reference exists. Only Python can check the name in it.
fn check_ref(dir: &Path, reference: &str, yaml: Option<&str>) -> anyhow::Result<()> {
    let file = reference
        .split_once(':')
        .map_or(reference, |(file, _)| file);
    if dir.join(file).is_file() {
        return Ok(());
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".py") {
            files.push(name);
        }
    }
    let hint = if files.is_empty() {
        "add the file, or correct the reference".to_owned()
    } else {
        format!("the Python files in the folder are {}", files.join(", "))
    };
    let line = yaml.and_then(|yaml| yaml.lines().position(|line| line.contains(reference)));
    let location = line.map_or_else(String::new, |line| {
        format!("{}:{}: ", dir.join("cog.yaml").display(), line + 1)
    });
    let missing = dir.join(file);
    Err(UsageError::new(format!(
        "{location}there is no file `{}` for `{reference}`",
        missing.display()
    ))
    .hint(hint)
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn args(words: &[&str]) -> ModelArgs {
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            model: ModelArgs,
        }
        Only::parse_from(std::iter::once(&"test").chain(words)).model
    }

    fn read(files: &[(&str, &str)], words: &[&str]) -> Result<ModelSource, String> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        ModelSource::read(dir.path(), &args(words), &CogEnv::default())
            .map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn cog_yaml_is_read_and_other_keys_are_ignored() {
        let yaml = "build:\n  gpu: true\nimage: r8.im/x/y\npredict: predict.py:Predictor\ntrain: train.py:train\nconcurrency:\n  max: 4\nenvironment:\n  - A=1\n  - B=x=y\n";
        let model = read(
            &[("cog.yaml", yaml), ("predict.py", ""), ("train.py", "")],
            &[],
        )
        .unwrap();
        assert_eq!(model.predictor_ref, "predict.py:Predictor");
        assert_eq!(model.train_ref.as_deref(), Some("train.py:train"));
        assert_eq!((model.concurrency, model.gpu), (Some(4), Some(true)));
        assert_eq!(
            model.env,
            [("A".into(), "1".into()), ("B".into(), "x=y".into())]
        );
    }

    #[test]
    fn an_error_in_cog_yaml_names_the_line_of_the_key() {
        for (yaml, expected) in [
            ("predict: a.py:A\npredict: b.py:B\n", ":2: duplicate"),
            ("run: a.py:A\nenvironment: 5\n", ":2: "),
            ("run: a.py:A\nbuild:\n  gpu: yess\n", ":3: "),
            ("run: a.py:A\nenvironment: [FOO]\n", ":2: invalid entry"),
            (
                "run: a.py:A\nenvironment:\n  - A=1\n  - FOO\n",
                ":4: invalid entry",
            ),
            (
                "run: a.py:A\nenvironment:\n  'A=B': 1\n",
                ":3: invalid entry",
            ),
            (
                "run: a.py:A\n# predict:\npredict: b.py:B\n",
                ":3: there are both",
            ),
            (
                "run: a.py:A\nconcurrency:\n  max: many\n",
                ":3:8: concurrency.max: ",
            ),
            ("- run\n", ":1:1: "),
        ] {
            let error = read(&[("cog.yaml", yaml), ("a.py", "")], &[]).unwrap_err();
            let expected = format!("cog.yaml{expected}");
            assert!(error.contains(&expected), "{yaml}{error}");
        }
    }

    #[test]
    fn a_model_that_can_only_be_trained_is_in_train_mode() {
        let files = [("cog.yaml", "train: train.py:train"), ("train.py", "")];
        let model = read(&files, &[]).unwrap();
        assert_eq!(
            (model.predictor_ref.as_str(), model.mode),
            ("train.py:train", ModeArg::Train)
        );
        let model = read(&files, &["--predict", "train.py:other"]).unwrap();
        assert_eq!(model.mode, ModeArg::Predict);
    }

    #[test]
    fn the_environment_may_be_a_map() {
        let model = read(
            &[
                (
                    "cog.yaml",
                    "run: a.py:A\nenvironment:\n  A: 1\n  B: x\n  C:\n",
                ),
                ("a.py", ""),
            ],
            &[],
        )
        .unwrap();
        assert_eq!(
            model.env,
            [
                ("A".into(), "1".into()),
                ("B".into(), "x".into()),
                ("C".into(), "".into())
            ]
        );
    }

    #[test]
    fn invalid_environment_variables_are_refused() {
        for entries in [
            "[A]",
            "[=x]",
            "['A=x', ' =y']",
            r#"["A=\0"]"#,
            r#"["A\0=x"]"#,
            "{'': x}",
            "{A=B: x}",
            r#"{A: "\0"}"#,
        ] {
            let yaml = format!("run: a.py:A\nenvironment: {entries}\n");
            let error = read(&[("cog.yaml", &yaml), ("a.py", "")], &[]).unwrap_err();
            assert!(error.contains("in `environment`"), "{entries}: {error}");
        }
    }

    #[test]
    fn the_command_line_takes_precedence() {
        let model = read(
            &[("cog.yaml", "run: a.py:A"), ("b.py", "")],
            &["--predict", "b.py:B"],
        )
        .unwrap();
        assert_eq!(model.predictor_ref, "b.py:B");
    }

    #[test]
    fn a_python_file_is_a_script_with_a_handler() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("handler.py");
        std::fs::write(&file, "").unwrap();
        std::fs::write(dir.path().join("cog.yaml"), "predict: other.py:P").unwrap();
        let read = |path: &Path, words: &[&str]| {
            ModelSource::read(path, &args(words), &CogEnv::default())
                .map_err(|error| format!("{error:#}"))
        };
        let model = read(&file, &[]).unwrap();
        assert_eq!(
            (model.predictor_ref.as_str(), model.is_script()),
            ("handler.py:__main__", true)
        );
        assert_eq!(
            (model.path(), &model.dir),
            (
                &*file.canonicalize().unwrap(),
                &dir.path().canonicalize().unwrap()
            )
        );
        assert!(
            read(&file, &["--predict", "a.py:A"])
                .unwrap_err()
                .contains("is a script")
        );
        let env = read(&file, &["--rp_debugger", "--", "--mine", "a b"])
            .unwrap()
            .env;
        assert_eq!(env[0], ("TIDEGATE_SCRIPT_NAME".into(), file.into()));
        assert_eq!(
            env[1],
            (
                "TIDEGATE_SCRIPT_FOLDER".into(),
                std::env::current_dir().unwrap().into()
            )
        );
        assert_eq!(env[2], ("TIDEGATE_RP_DEBUGGER".into(), "1".into()));
        assert_eq!(
            env[3],
            ("TIDEGATE_SCRIPT_ARGS".into(), r#"["--mine","a b"]"#.into())
        );
        assert!(
            read(dir.path(), &["--", "--mine"])
                .unwrap_err()
                .contains("for a script")
        );
        assert!(
            read(&dir.path().join("cog.yaml"), &[])
                .unwrap_err()
                .contains("neither a folder nor a Python file")
        );
    }

    #[test]
    fn mistakes_are_reported_with_file_and_line() {
        let error = read(&[("cog.yaml", "build:\n  gpu: true\npredict: [1\n")], &[]).unwrap_err();
        assert!(error.contains("cog.yaml:"), "{error}");
        assert!(
            read(&[("cog.yaml", "predict: gone.py:X"), ("here.py", "")], &[])
                .unwrap_err()
                .contains("gone.py")
        );
        assert!(
            read(&[("cog.yaml", "build: {}")], &[])
                .unwrap_err()
                .contains("names no predictor")
        );
        assert!(read(&[], &[]).unwrap_err().contains("no cog.yaml"));
    }

    #[test]
    fn a_folder_with_a_handler_and_no_cog_yaml_is_a_script() {
        let model = read(&[("handler.py", "")], &["--", "--mine"]).unwrap();
        assert!(model.is_script());
        assert_eq!(model.path(), model.dir, "all its files belong to it");
        let folder = model
            .env
            .iter()
            .find(|(name, _)| name == "TIDEGATE_SCRIPT_FOLDER");
        assert_eq!(folder.unwrap().1, model.dir);
        let named = read(
            &[("handler.py", ""), ("a.py", "")],
            &["--predict", "a.py:A"],
        );
        assert_eq!(named.unwrap().predictor_ref, "a.py:A");
        let with_yaml = [
            ("handler.py", ""),
            ("a.py", ""),
            ("cog.yaml", "run: a.py:A"),
        ];
        assert!(!read(&with_yaml, &[]).unwrap().is_script());
        assert!(
            read(&[("handler.py", "")], &["--mode", "train"])
                .unwrap_err()
                .contains("is a script")
        );
    }
}
