//! From the types of the file to the configuration. All mistakes of a file are reported together.

mod access;
mod checker;
mod endpoint;
mod model;
mod sections;

use std::path::Path;

use checker::FleetChecker;
pub use checker::SecretSource;

use super::error::{FleetError, FleetProblem};
use super::file::FleetFile;
use super::{Fleet, syntax};

/// The text of a configuration and where it comes from.
#[derive(Debug, Clone, Copy)]
pub struct FleetSource<'a> {
    /// The file, for messages; relative paths in the text start at its folder.
    pub path: &'a Path,
    /// The content.
    pub text: &'a str,
    /// Top-level keys that are settings of the command and are skipped.
    pub settings: &'a [&'a str],
}

/// Parses and validates a configuration.
pub fn parse_fleet(
    source: FleetSource<'_>,
    secrets: &dyn SecretSource,
) -> Result<Fleet, FleetError> {
    let failed = |mut problems: Vec<FleetProblem>| {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        FleetError {
            path: source.path.to_owned(),
            problems,
        }
    };
    let file =
        syntax::read(source.text, source.settings).map_err(|problem| failed(vec![problem]))?;
    let folder = source.path.parent().unwrap_or(Path::new(""));
    let mut checker = FleetChecker::new(source.text, folder, secrets);
    let fleet = fleet(&mut checker, &file);
    match (fleet, checker.into_problems()) {
        (Some(fleet), problems) if problems.is_empty() => Ok(fleet),
        (_, problems) => Err(failed(problems)),
    }
}

/// The configuration, with defaults in place of invalid values; `None` if it would be contradictory. The
/// checker has the problems in both cases.
fn fleet(checker: &mut FleetChecker<'_>, file: &FleetFile) -> Option<Fleet> {
    let own_site = sections::own_site(checker, file.site.as_ref());
    let sites = sections::remote_sites(checker, &own_site, &file.remote_site);
    let accounts = access::accounts(checker, &file.account);
    let join_keys = access::join_keys(checker, file);
    let fleet = Fleet {
        limits: sections::limits(checker, &file.limits),
        dns: sections::dns(checker, &file.dns),
        consul: sections::consul(checker, &file.consul),
        probe: sections::probe(checker, &file.probe),
        events_socket: sections::events_socket(checker, &file.events),
        site: own_site,
        sites,
        accounts,
        join_keys,
        ..Fleet::default()
    };
    let models = model::models(checker, &fleet, &file.model);
    // A duplicate name is a problem that the checker has already.
    fleet.with_models(models).ok()
}

#[cfg(test)]
mod tests;
