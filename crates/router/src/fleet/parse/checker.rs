//! Reads single values and collects the problems with them.

use std::collections::HashMap;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_core::units;
use toml::Spanned;

use crate::fleet::error::FleetProblem;
use crate::fleet::file::Key;
use crate::fleet::file_values::{Decimal, FileSecret, Quantity, Whole};
use crate::fleet::syntax::closest;

/// Where secrets that are not in the file come from.
pub trait SecretSource {
    /// The content of a file.
    fn file(&self, path: &Path) -> io::Result<String>;

    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
}

pub(super) struct FleetChecker<'a> {
    text: &'a str,
    folder: &'a Path,
    secrets: &'a dyn SecretSource,
    problems: Vec<FleetProblem>,
}

impl<'a> FleetChecker<'a> {
    pub(super) fn new(text: &'a str, folder: &'a Path, secrets: &'a dyn SecretSource) -> Self {
        Self {
            text,
            folder,
            secrets,
            problems: Vec::new(),
        }
    }

    pub(super) fn into_problems(self) -> Vec<FleetProblem> {
        self.problems
    }

    pub(super) fn problem(
        &mut self,
        span: Range<usize>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        let problem = FleetProblem::at(self.text, &span, problem.into(), fix.into());
        self.problems.push(problem);
    }

    /// The line of a position, for messages that refer to another place.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        FleetProblem::at(self.text, span, String::new(), String::new()).line
    }

    /// A path, relative to the folder of the file.
    pub(super) fn path(&self, text: &str) -> PathBuf {
        self.folder.join(text)
    }

    /// A duration that is not zero.
    pub(super) fn duration(
        &mut self,
        key: &str,
        value: &Key<Quantity>,
        default: Duration,
    ) -> Duration {
        self.quantity(key, value, default, units::positive_duration)
    }

    /// A duration that may be zero.
    pub(super) fn delay(
        &mut self,
        key: &str,
        value: &Key<Quantity>,
        default: Duration,
    ) -> Duration {
        self.quantity(key, value, default, units::duration)
    }

    pub(super) fn size(&mut self, key: &str, value: &Key<Quantity>, default: usize) -> usize {
        self.quantity(key, value, default, units::size)
    }

    fn quantity<T>(
        &mut self,
        key: &str,
        value: &Key<Quantity>,
        default: T,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let Some(value) = value else {
            return default;
        };
        let text = &value.get_ref().0;
        match parse(text) {
            Ok(parsed) => parsed,
            Err(fix) => {
                self.problem(
                    value.span(),
                    format!("`{text}` is not valid for `{key}`"),
                    fix,
                );
                default
            }
        }
    }

    pub(super) fn whole(
        &mut self,
        key: &str,
        value: &Key<Whole>,
        range: RangeInclusive<u32>,
        default: u32,
    ) -> u32 {
        let Some(value) = value else {
            return default;
        };
        let number = value.get_ref().0;
        match u32::try_from(number).ok().filter(|n| range.contains(n)) {
            Some(number) => number,
            None => {
                let (first, last) = range.into_inner();
                let fix = match last {
                    u32::MAX => format!("write a number of at least {first}"),
                    last if last == first + 1 => format!("write {first} or {last}"),
                    last => format!("write a number from {first} to {last}"),
                };
                self.problem(value.span(), format!("`{key}` cannot be {number}"), fix);
                default
            }
        }
    }

    /// A number that `is_valid` accepts.
    pub(super) fn decimal(
        &mut self,
        key: &str,
        value: &Key<Decimal>,
        is_valid: impl Fn(f64) -> bool,
        fix: &str,
    ) -> Option<f64> {
        let value = value.as_ref()?;
        let number = value.get_ref().0;
        if number.is_finite() && is_valid(number) {
            return Some(number);
        }
        self.problem(value.span(), format!("`{key}` cannot be {number}"), fix);
        None
    }

    /// One of a few names.
    pub(super) fn choice<T: Copy + Default>(
        &mut self,
        key: &str,
        value: &Key<String>,
        choices: &[(&str, T)],
    ) -> T {
        let Some(value) = value else {
            return T::default();
        };
        let text = value.get_ref();
        if let Some((_, choice)) = choices.iter().find(|(name, _)| name == text) {
            return *choice;
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let fix = match closest(text, names.iter().copied()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("write one of {}", names.join(", ")),
        };
        self.problem(value.span(), format!("there is no {key} `{text}`"), fix);
        T::default()
    }

    /// The value of a required key of a table.
    pub(super) fn required<'v, T>(
        &mut self,
        table: &Range<usize>,
        what: &str,
        value: &'v Key<T>,
        fix: &str,
    ) -> Option<&'v Spanned<T>> {
        if value.is_none() {
            self.problem(table.clone(), what, fix);
        }
        value.as_ref()
    }

    /// A secret: what the file says, or what the file or variable that it names contains. Messages never
    /// contain the value.
    pub(super) fn secret(&mut self, key: &str, value: &Spanned<FileSecret>) -> Option<String> {
        let (span, found) = match value.get_ref() {
            FileSecret::Literal(text) => (value.span(), Ok(text.clone())),
            FileSecret::File(path) => (path.span(), self.secret_file(path.get_ref())),
            FileSecret::Env(name) => (name.span(), self.secret_variable(name.get_ref())),
        };
        let checked = found.and_then(|text| {
            let text = text.trim().to_owned();
            if text.is_empty() {
                Err((format!("`{key}` is empty"), "give a secret".to_owned()))
            } else if text.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
                Ok(text)
            } else {
                Err((
                    format!("`{key}` has characters that cannot be sent in a header"),
                    "use one line of visible ASCII characters".to_owned(),
                ))
            }
        });
        match checked {
            Ok(text) => Some(text),
            Err((problem, fix)) => {
                self.problem(span, problem, fix);
                None
            }
        }
    }

    /// The content of a file with a secret.
    pub(super) fn secret_file(&self, path: &str) -> Result<String, (String, String)> {
        let path = self.path(path);
        self.secrets.file(&path).map_err(|error| {
            let problem = format!("failed to read `{}`: {error}", path.display());
            let fix = "create the file, readable for the user of the router; relative paths start at the folder of this file";
            (problem, fix.to_owned())
        })
    }

    fn secret_variable(&self, name: &str) -> Result<String, (String, String)> {
        self.secrets.variable(name).ok_or_else(|| {
            (
                format!("the environment variable `{name}` is not set"),
                "set it before the router starts, or use `{ file = \"PATH\" }`".to_owned(),
            )
        })
    }

    /// Reports the second of two equal names.
    pub(super) fn unique(
        &mut self,
        seen: &mut HashMap<String, Range<usize>>,
        what: &str,
        name: &Spanned<String>,
    ) {
        if let Some(first) = seen.get(name.get_ref()) {
            let line = self.line(first);
            self.problem(
                name.span(),
                format!("two {what} are called `{}`", name.get_ref()),
                format!("choose another name; line {line} has it already"),
            );
        } else {
            seen.insert(name.get_ref().clone(), name.span());
        }
    }
}
