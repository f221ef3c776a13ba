//! What a reload changes: models and endpoints that are added, removed or changed.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Discovery, Fleet, FleetModel};

/// The difference between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FleetDiff {
    /// Models that only the new configuration has.
    pub models_added: Vec<String>,
    /// Models that only the old configuration has.
    pub models_removed: Vec<String>,
    /// Models with other settings; those of endpoints do not count.
    pub models_changed: Vec<String>,
    /// Endpoints that only the new configuration has, as `MODEL ADDRESS`.
    pub endpoints_added: Vec<String>,
    /// Endpoints that only the old configuration has.
    pub endpoints_removed: Vec<String>,
    /// Endpoints with other settings.
    pub endpoints_changed: Vec<String>,
    /// Parts of the configuration that concern all models and have changed, such as `accounts`.
    pub sections_changed: Vec<&'static str>,
}

impl FleetDiff {
    /// The changes from `old` to `new`.
    pub fn between(old: &Fleet, new: &Fleet) -> Self {
        let models = compare(&models_of(old), &models_of(new));
        let endpoints = compare(&endpoints_of(old), &endpoints_of(new));
        let sections = [
            ("site", old.site == new.site),
            ("limits", old.limits == new.limits),
            ("remote_site", old.sites == new.sites),
            ("account", old.accounts == new.accounts),
            ("join_key", old.join_keys == new.join_keys),
            ("dns", old.dns == new.dns),
            ("consul", old.consul == new.consul),
            ("probe", old.probe == new.probe),
            ("events", old.events_socket == new.events_socket),
        ];
        Self {
            models_added: models.added,
            models_removed: models.removed,
            models_changed: models.changed,
            endpoints_added: endpoints.added,
            endpoints_removed: endpoints.removed,
            endpoints_changed: endpoints.changed,
            sections_changed: sections
                .into_iter()
                .filter_map(|(name, is_equal)| (!is_equal).then_some(name))
                .collect(),
        }
    }

    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One line for logs: `1 model added, 2 endpoints changed`.
impl fmt::Display for FleetDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.models_added.len(), "model", "added"),
            (self.models_removed.len(), "model", "removed"),
            (self.models_changed.len(), "model", "changed"),
            (self.endpoints_added.len(), "endpoint", "added"),
            (self.endpoints_removed.len(), "endpoint", "removed"),
            (self.endpoints_changed.len(), "endpoint", "changed"),
            (self.sections_changed.len(), "section", "changed"),
        ];
        let mut parts = counts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, thing, what)| {
                let plural = if *count == 1 { "" } else { "s" };
                format!("{count} {thing}{plural} {what}")
            })
            .peekable();
        if parts.peek().is_none() {
            return f.write_str("no changes");
        }
        f.write_str(&parts.collect::<Vec<_>>().join(", "))
    }
}

struct Changes {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<String>,
}

fn compare<T: PartialEq>(old: &BTreeMap<String, T>, new: &BTreeMap<String, T>) -> Changes {
    let missing = |from: &BTreeMap<String, T>, to: &BTreeMap<String, T>| {
        let names = from.keys().filter(|name| !to.contains_key(*name));
        names.cloned().collect()
    };
    let changed = new
        .iter()
        .filter(|(name, value)| old.get(*name).is_some_and(|old| old != *value))
        .map(|(name, _)| name.clone());
    Changes {
        added: missing(new, old),
        removed: missing(old, new),
        changed: changed.collect(),
    }
}

/// The models without their endpoints.
fn models_of(fleet: &Fleet) -> BTreeMap<String, FleetModel> {
    let without_endpoints = |model: &FleetModel| FleetModel {
        endpoints: Vec::new(),
        ..model.clone()
    };
    let models = fleet.models().iter();
    models
        .map(|model| (model.name.clone(), without_endpoints(model)))
        .collect()
}

fn endpoints_of(fleet: &Fleet) -> BTreeMap<String, super::EndpointConfig> {
    let mut endpoints = BTreeMap::new();
    for model in fleet.models() {
        for endpoint in &model.endpoints {
            let name = format!("{} {}", model.name, endpoint.address);
            endpoints.insert(name, endpoint.clone());
        }
    }
    endpoints
}

/// The address as in the file, for messages.
impl fmt::Display for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.fmt(f),
            Self::Dns(name) => write!(f, "dns {name}"),
            Self::Srv(name) => write!(f, "srv {name}"),
            Self::Consul(service) => write!(f, "consul {service}"),
            Self::Join => f.write_str("join"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{BackendKind, BackendUrl, EndpointConfig};

    fn fleet(models: &[(&str, &[(&str, u32)])]) -> Fleet {
        let models = models.iter().map(|(name, endpoints)| {
            let endpoints = endpoints.iter().map(|(url, permits)| EndpointConfig {
                permits: Some(*permits),
                ..EndpointConfig::new(
                    Discovery::Url(BackendUrl::parse(url).unwrap()),
                    BackendKind::OpenAi,
                )
            });
            FleetModel {
                endpoints: endpoints.collect(),
                ..FleetModel::new(*name)
            }
        });
        Fleet::default().with_models(models.collect()).unwrap()
    }

    #[test]
    fn a_diff_names_models_and_endpoints() {
        let old = fleet(&[("a", &[("http://h:1", 1), ("http://h:2", 2)]), ("b", &[])]);
        let new = fleet(&[("a", &[("http://h:1", 8), ("http://h:3", 2)]), ("c", &[])]);
        let diff = FleetDiff::between(&old, &new);
        assert_eq!(diff.models_added, ["c"]);
        assert_eq!(diff.models_removed, ["b"]);
        assert!(diff.models_changed.is_empty());
        assert_eq!(diff.endpoints_added, ["a http://h:3"]);
        assert_eq!(diff.endpoints_removed, ["a http://h:2"]);
        assert_eq!(diff.endpoints_changed, ["a http://h:1"]);
        assert_eq!(
            diff.to_string(),
            "1 model added, 1 model removed, 1 endpoint added, 1 endpoint removed, 1 endpoint changed"
        );
    }

    #[test]
    fn equal_configurations_have_no_diff() {
        let fleet = fleet(&[("a", &[("http://h:1", 1)])]);
        let diff = FleetDiff::between(&fleet, &fleet);
        assert!(diff.is_empty());
        assert_eq!(diff.to_string(), "no changes");
    }
}
