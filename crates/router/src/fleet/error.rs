//! Mistakes in `fleet.toml`: where each is, what is wrong, and how to fix it.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The file is not a valid configuration. Nothing of it is used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FleetError {
    /// The file.
    pub path: PathBuf,
    /// The mistakes, in the order of the file; at least one.
    pub problems: Vec<FleetProblem>,
}

/// One mistake in `fleet.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetProblem {
    /// The line, from 1; 0 if the problem is not at one place, such as a file that cannot be read.
    pub line: usize,
    /// The column in characters, from 1; 0 if `line` is.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
    /// How to fix it.
    pub fix: String,
}

impl FleetError {
    /// The file could not be read.
    pub fn unreadable(path: &Path, error: &std::io::Error) -> Self {
        let problem = FleetProblem {
            line: 0,
            column: 0,
            problem: format!("failed to read the file: {error}"),
            fix: "give the path of a TOML file in UTF-8 that this user may read".to_owned(),
        };
        Self {
            path: path.to_owned(),
            problems: vec![problem],
        }
    }
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            let path = self.path.display();
            match problem {
                FleetProblem { line: 0, .. } => write!(f, "{path}: ")?,
                FleetProblem { line, column, .. } => write!(f, "{path}:{line}:{column}: ")?,
            }
            write!(f, "{}\n  try: {}", problem.problem, problem.fix)?;
        }
        Ok(())
    }
}

impl FleetProblem {
    /// A problem at a range of bytes of the text.
    pub(super) fn at(text: &str, span: &Range<usize>, problem: String, fix: String) -> Self {
        let before = text.get(..span.start.min(text.len())).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: 1 + before.matches('\n').count(),
            column: 1 + before[line_start..].chars().count(),
            problem,
            fix,
        }
    }
}
