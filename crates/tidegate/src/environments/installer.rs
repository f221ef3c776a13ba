//! Creates environments, with `uv` if the machine has it, else with `venv` and `pip`.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tidegate_runtime::ToolProcess;

use super::build_spec::BuildSpec;
use super::interpreter::{self, BaseInterpreter};
use super::progress::InstallProgress;
use super::requirements::{Requirement, without_credentials};
use super::store::{Environment, EnvironmentDescription, EnvironmentFolder, EnvironmentStore};
use crate::secrets;
use crate::usage_error::UsageError;

/// The last lines of the installer that an error message shows.
const SHOWN_LINES: usize = 15;
/// Variables that would make an installer use another environment.
const FOREIGN_VARIABLES: [&str; 4] = ["PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"];

/// What to install, and how.
pub(crate) struct InstallRequest<'a> {
    pub(crate) spec: &'a BuildSpec,
    pub(crate) store: &'a EnvironmentStore,
    /// The interpreter for models that ask for no version.
    pub(crate) python: &'a Path,
    pub(crate) progress: InstallProgress,
    /// Whether an installed environment is created again.
    pub(crate) again: bool,
}

/// An environment was not created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InstallError {
    #[error("failed to write the environment in `{path}`")]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("failed to start `{program}`")]
    Start {
        program: &'static str,
        source: std::io::Error,
    },
    #[error("{}", describe_failure(.program, .requirements, .lines))]
    Failed {
        program: &'static str,
        /// The requirements that the output of the program mentions.
        requirements: Vec<Requirement>,
        /// The end of its output.
        lines: Vec<String>,
    },
}

fn describe_failure(program: &str, requirements: &[Requirement], lines: &[String]) -> String {
    let output: String = lines.iter().map(|line| format!("\n  | {line}")).collect();
    let culprits: String = requirements
        .iter()
        .map(|line| format!("\n  requirement: {} ({})", line.text, line.location))
        .collect();
    format!("`{program}` failed{culprits}{output}")
}

/// Creates the environment of a model, unless it exists. Nothing is created for a model without packages.
pub(crate) fn install(request: &InstallRequest<'_>) -> anyhow::Result<Option<Environment>> {
    let InstallRequest { spec, store, .. } = request;
    if !spec.needs_environment() {
        return Ok(None);
    }
    if !request.again
        && let Some(environment) = store.find(spec, request.python)
    {
        return Ok(Some(environment));
    }
    let folder = store.folder_for(spec, request.python).ok_or_else(|| {
        UsageError::new("there is no folder for environments, because HOME is not set")
            .hint("give one with --data-dir DIR")
    })?;
    let _lock = folder.lock(|| {
        let text = "waiting for another process that installs the same packages";
        request.progress.announce(text);
    })?;
    // Another process may have installed it meanwhile.
    if !request.again
        && let Some(environment) = folder.open()
    {
        return Ok(Some(environment));
    }
    create(request, &folder).map(Some)
}

fn create(request: &InstallRequest<'_>, folder: &EnvironmentFolder) -> anyhow::Result<Environment> {
    let spec = request.spec;
    let started_at = Instant::now();
    let uv = find_uv();
    let base = interpreter::find(spec.python_version, request.python, uv.as_deref())?;
    let path = folder.prepare()?;
    let tool = if uv.is_some() { "uv" } else { "pip" };
    request.progress.announce(&format!(
        "installing the packages of {} with {tool}",
        spec.dir.display()
    ));
    let created = Installer {
        request,
        uv: uv.as_deref(),
        path: &path,
    }
    .run(&base);
    if let Err(error) = created {
        // It has no description, so the next installation removes what is left of it.
        std::fs::remove_dir_all(&path).ok();
        return Err(error.into());
    }
    let python = interpreter::version_of(&path.join("bin").join("python"));
    let description = EnvironmentDescription {
        model: spec.dir.clone(),
        python: python
            .map(|version| version.to_string())
            .unwrap_or_default(),
        requirements: spec.requirements.texts(),
        created_at: jiff::Timestamp::now(),
    };
    folder
        .publish(&path, &description)
        .map_err(|source| InstallError::Write {
            path: path.clone(),
            source,
        })?;
    request.progress.announce(&format!(
        "installed after {:.1} s in {}",
        started_at.elapsed().as_secs_f64(),
        path.display()
    ));
    Ok(Environment { path, description })
}

/// Runs the programs that create one environment.
struct Installer<'a> {
    request: &'a InstallRequest<'a>,
    uv: Option<&'a Path>,
    path: &'a Path,
}

/// A program that an installation runs.
struct InstallerCommand {
    /// As a user would write it.
    name: &'static str,
    program: OsString,
    arguments: Vec<OsString>,
}

impl Installer<'_> {
    fn run(&self, base: &BaseInterpreter) -> Result<(), InstallError> {
        self.execute("creating the environment", &self.create_command(base))?;
        if self.request.spec.requirements.is_empty() {
            return Ok(());
        }
        self.execute("installing packages", &self.install_command())
    }

    fn create_command(&self, base: &BaseInterpreter) -> InstallerCommand {
        let base: OsString = match base {
            BaseInterpreter::Program(program) => program.into(),
            BaseInterpreter::FromUv(version) => version.to_string().into(),
        };
        match self.uv {
            Some(uv) => InstallerCommand {
                name: "uv venv",
                program: uv.into(),
                arguments: vec!["venv".into(), "--python".into(), base, self.path.into()],
            },
            None => InstallerCommand {
                name: "python -m venv",
                program: base,
                arguments: vec!["-m".into(), "venv".into(), self.path.into()],
            },
        }
    }

    fn install_command(&self) -> InstallerCommand {
        let python = self.path.join("bin").join("python");
        let requirements = self.request.spec.requirements.arguments();
        let pip = [
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
        ];
        match self.uv {
            Some(uv) => InstallerCommand {
                name: "uv pip install",
                program: uv.into(),
                arguments: [
                    "pip".into(),
                    "install".into(),
                    "--python".into(),
                    python.into(),
                ]
                .into_iter()
                .chain(requirements)
                .collect(),
            },
            None => InstallerCommand {
                name: "python -m pip install",
                program: python.into(),
                arguments: pip
                    .map(OsString::from)
                    .into_iter()
                    .chain(["--progress-bar".into(), "off".into()])
                    .chain(requirements)
                    .collect(),
            },
        }
    }

    /// Runs a command in the folder of the model and shows its output.
    fn execute(&self, text: &str, step: &InstallerCommand) -> Result<(), InstallError> {
        let failed = |source| InstallError::Start {
            program: step.name,
            source,
        };
        let output = self.request.progress.start(text);
        let (reader, writer) = std::io::pipe().map_err(failed)?;
        let mut command = Command::new(&step.program);
        command
            .args(&step.arguments)
            .current_dir(&self.request.spec.dir)
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(failed)?)
            .stderr(writer);
        for name in FOREIGN_VARIABLES.iter().chain(&secrets::NAMES) {
            command.env_remove(name);
        }
        let mut process = ToolProcess::spawn(&mut command).map_err(failed)?;
        // It holds the writing end of the pipe.
        drop(command);
        let mut lines = Vec::new();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.map_err(failed)?;
            let line = without_credentials(String::from_utf8_lossy(&line).trim_end());
            output.line(&line);
            lines.push(line);
        }
        drop(output);
        if process.wait().map_err(failed)?.success() {
            return Ok(());
        }
        Err(self.failure(step.name, lines))
    }

    fn failure(&self, program: &'static str, lines: Vec<String>) -> InstallError {
        let end = lines.len().saturating_sub(SHOWN_LINES);
        let lines = lines[end..].to_vec();
        let message = problem_lines(&lines);
        let requirements = self.request.spec.requirements.mentioned_in(&message);
        InstallError::Failed {
            program,
            requirements: requirements.into_iter().cloned().collect(),
            lines,
        }
    }
}

/// The lines from the first one that reports a problem; all lines if none does. Those before it name
/// every package that was installed.
fn problem_lines(lines: &[String]) -> String {
    let is_problem = |line: &String| {
        let line = line.trim_start().to_lowercase();
        line.starts_with("error") || line.starts_with('×')
    };
    let begin = lines.iter().position(is_problem).unwrap_or(0);
    lines[begin..].join("\n")
}

fn find_uv() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join("uv"))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_about_the_problem_name_requirements() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let pip = lines("Collecting good==1\nERROR: No matching distribution found for bad==2");
        assert_eq!(
            problem_lines(&pip),
            "ERROR: No matching distribution found for bad==2"
        );
        let uv = lines(
            "Resolved 1 package\n  × No solution found when resolving dependencies:\n  ╰─▶ Because bad was not found",
        );
        assert!(problem_lines(&uv).contains("bad") && !problem_lines(&uv).contains("Resolved"));
        let uv = lines(
            "Resolved 1 package\nerror: No solution found when resolving dependencies\n  cause: Because bad was not found",
        );
        assert!(problem_lines(&uv).contains("bad") && !problem_lines(&uv).contains("Resolved"));
        assert_eq!(problem_lines(&lines("a\nb")), "a\nb");
    }
}
