//! `tidegate doctor`: checks that this machine can run models.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use tidegate_runtime::Scratch;

use super::doctor_gpus::{self, GpuPresence};
use super::doctor_packages;
use crate::cli::{DoctorArgs, ModeArg, ModelArgs};
use crate::compat::CogEnv;
use crate::environments::EnvironmentStore;
use crate::model_source::ModelSource;
use crate::models::ServeTarget;
use crate::python::Python;
use crate::usage_error::UsageError;
use crate::{build_info, exit};

/// A script for the interpreter that prints one fact per line.
const PROBE: &str = "
import sys, importlib.util as u
print('python', '.'.join(map(str, sys.version_info[:3])))
import tidegate; print('tidegate', tidegate.__version__)
import tidegate._native; print('native', tidegate._native.__file__)
print('cog', 'real' if u.find_spec('cog') else 'shim')
";

pub(crate) fn doctor(args: &DoctorArgs, env: &CogEnv) -> anyhow::Result<ExitCode> {
    let mut checks = CheckReport { failed: 0 };
    checks.pass(&format!("tidegate {}", build_info::LONG));
    match Scratch::new(None) {
        Ok(scratch) => checks.pass(&format!(
            "temporary files go to {}",
            scratch.path().parent().unwrap_or(Path::new("/")).display()
        )),
        Err(error) => checks.fail(
            &format!("failed to create temporary files: {error}"),
            "set TMPDIR to a writable folder",
        ),
    }
    let gpus = doctor_gpus::check(&checks);
    let python = match Python::find(args.python.as_deref()) {
        Ok(python) => probe(&mut checks, python),
        Err(error) => {
            checks.fail(&format!("{error:#}"), "set the interpreter with --python");
            None
        }
    };
    if let (Some(dir), Some(python)) = (&args.dir, python) {
        for folder in ServeTarget::of(dir).folders() {
            model(&mut checks, &folder, &python, args, env, gpus);
        }
    }
    Ok(if checks.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}

fn probe(checks: &mut CheckReport, python: Python) -> Option<Python> {
    let program = python.program.display().to_string();
    let output = match python
        .command()
        .args(["-c", PROBE])
        .current_dir("/")
        .output()
    {
        Ok(output) => output,
        Err(error) => {
            checks.fail(
                &format!("failed to start `{program}`: {error}"),
                "install Python 3.10 or newer, or set its path with --python",
            );
            return None;
        }
    };
    let facts = String::from_utf8_lossy(&output.stdout).into_owned();
    let fact = |name: &str| {
        facts
            .lines()
            .find_map(|line| line.strip_prefix(name).map(str::trim))
    };
    match fact("python") {
        Some(version) if is_old(version) => checks.fail(
            &format!("`{program}` is Python {version}"),
            "models need Python 3.10 or newer; set its path with --python",
        ),
        Some(version) => checks.pass(&format!("Python {version} ({program})")),
        None => checks.fail(
            &format!("`{program}` failed: {}", last_line(&output.stderr)),
            "set another interpreter with --python",
        ),
    }
    if fact("native").is_none() {
        checks.fail(
            &format!(
                "`{program}` failed to import the tidegate package: {}",
                last_line(&output.stderr)
            ),
            &format!("{program} -m pip install tidegate"),
        );
        return None;
    }
    checks.pass(&format!(
        "the tidegate package {} is installed",
        fact("tidegate").unwrap_or_default()
    ));
    checks.pass(match fact("cog") {
        Some("real") => "`import cog` uses the cog package",
        Some(_) | None => {
            "`import cog` uses tidegate's replacement, because the cog package is not installed"
        }
    });
    Some(python)
}

fn model(
    checks: &mut CheckReport,
    dir: &Path,
    python: &Python,
    doctor: &DoctorArgs,
    env: &CogEnv,
    gpus: GpuPresence,
) {
    let args = ModelArgs {
        python: None,
        predict: None,
        train: None,
        setup_timeout: None,
        rp_debugger: false,
        rp_log_level: None,
        script_args: Vec::new(),
        mode: ModeArg::Predict,
    };
    let model = match ModelSource::read(dir, &args, env) {
        Ok(model) => model,
        Err(error) => {
            let remedy = UsageError::hint_of(&error);
            return checks.fail(
                &format!("{error:#}"),
                remedy.unwrap_or("correct the model as the message describes"),
            );
        }
    };
    checks.pass(&format!(
        "the model is `{}` in {}",
        model.predictor_ref,
        model.dir.display()
    ));
    doctor_gpus::check_model(checks, &model, gpus);
    // Without one, the check of the temporary files has failed already.
    let Ok(scratch) = Scratch::new(None) else {
        return;
    };
    let store = EnvironmentStore::new(doctor.environments.data_dir.as_ref());
    let python = doctor_packages::check(checks, &model, python, &store, scratch.path());
    let mut command = python.command();
    command
        .args(["-m", "tidegate.schema"])
        .arg(&model.dir)
        .args(["--predict", &model.predictor_ref])
        .current_dir("/");
    if let Some(train) = &model.train_ref {
        command.args(["--train", train]);
    }
    match command.output() {
        Ok(output) if output.status.success() => checks.pass("the schema of the model is valid"),
        Ok(output) => checks.fail(
            String::from_utf8_lossy(&output.stderr).trim(),
            "correct the model as the message describes",
        ),
        Err(error) => checks.fail(&error.to_string(), "set the interpreter with --python"),
    }
}

pub(super) struct CheckReport {
    failed: usize,
}

impl CheckReport {
    pub(super) fn pass(&self, text: &str) {
        Self::line("ok   ", text);
    }

    /// Something that may keep a model from working.
    pub(super) fn warn(&self, text: &str, remedy: &str) {
        Self::line("warn ", text);
        Self::line("     ", &format!("try: {remedy}"));
    }

    pub(super) fn fail(&mut self, text: &str, remedy: &str) {
        self.failed += 1;
        Self::line("FAIL ", text);
        Self::line("     ", &format!("try: {remedy}"));
    }

    fn line(mark: &str, text: &str) {
        writeln!(std::io::stdout().lock(), "{mark}{text}").ok();
    }
}

fn is_old(version: &str) -> bool {
    let mut parts = version
        .split('.')
        .filter_map(|part| part.parse::<u32>().ok());
    (parts.next(), parts.next()) < (Some(3), Some(10))
}

fn last_line(stderr: &[u8]) -> String {
    String::from_utf8_lossy(stderr)
        .trim()
        .lines()
        .last()
        .unwrap_or("no message")
        .to_owned()
}
