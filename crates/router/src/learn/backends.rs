//! The backends of the command line and what they told, and the fleet that follows from it.

use std::collections::{HashMap, HashSet};

use super::{LearnedBackend, LearnedModel};
use crate::control::{SourceCondition, SourceStatus};
use crate::fleet::{BackendFlag, Discovery, EndpointConfig, Fleet, FleetModel};

/// The name under which the only model of a fleet can also be asked.
const DEFAULT_ALIAS: &str = "default";

/// The backends of `--backend`.
#[derive(Default)]
pub(crate) struct LearnedBackends {
    entries: Vec<BackendEntry>,
    /// The names of models without a name, by their schema. They stay while the process runs.
    given_names: HashMap<u64, String>,
}

struct BackendEntry {
    flag: BackendFlag,
    learned: Option<LearnedBackend>,
    condition: SourceCondition,
    error: Option<String>,
}

impl LearnedBackends {
    pub(crate) fn new(flags: &[BackendFlag]) -> Self {
        let entries = flags.iter().map(|flag| BackendEntry {
            flag: flag.clone(),
            learned: None,
            condition: SourceCondition::Pending,
            error: None,
        });
        Self {
            entries: entries.collect(),
            given_names: HashMap::new(),
        }
    }

    /// Uses what a backend told. Returns whether anything changed.
    pub(crate) fn learned(&mut self, flag: &BackendFlag, learned: LearnedBackend) -> bool {
        let Some(entry) = self.entry(flag) else {
            return false;
        };
        entry.condition = SourceCondition::Current;
        entry.error = None;
        if entry.learned.as_ref() == Some(&learned) {
            return false;
        }
        let (kind, models) = (learned.kind.name(), learned.models.len());
        tracing::info!(backend = %flag.url, kind, models, "learned the models of a backend");
        entry.learned = Some(learned);
        true
    }

    /// Keeps what a backend told earlier.
    pub(crate) fn failed(&mut self, flag: &BackendFlag, error: String) {
        let Some(entry) = self.entry(flag) else {
            return;
        };
        if entry.condition != SourceCondition::Failing {
            tracing::warn!(backend = %flag.url, %error, "failed to learn the models of a backend");
        }
        entry.condition = SourceCondition::Failing;
        entry.error = Some(error);
    }

    /// Whether every backend has answered or failed once.
    pub(crate) fn is_settled(&self) -> bool {
        let mut entries = self.entries.iter();
        entries.all(|entry| entry.condition != SourceCondition::Pending)
    }

    pub(crate) fn statuses(&self) -> impl Iterator<Item = SourceStatus> {
        self.entries.iter().map(|entry| SourceStatus {
            source: format!("backend {}", entry.flag.url),
            condition: entry.condition,
            endpoints: usize::from(entry.learned.is_some()),
            error: entry.error.clone(),
        })
    }

    /// The models of all backends; every model gets all backends that have it.
    pub(crate) fn fleet(&mut self) -> Fleet {
        let mut models = Vec::<FleetModel>::new();
        for entry in &self.entries {
            let Some(learned) = &entry.learned else {
                continue;
            };
            for model in &learned.models {
                let authority = entry.flag.url.authority();
                let (name, alias) = match model {
                    LearnedModel::Named(name) => (name.clone(), None),
                    LearnedModel::Unnamed { schema } => {
                        let given = self.given_names.entry(*schema);
                        let name = given.or_insert_with(|| authority.clone()).clone();
                        (name, Some(authority))
                    }
                };
                let address = Discovery::Url(entry.flag.url.clone());
                let endpoint = EndpointConfig::new(address, learned.kind);
                add(&mut models, name, alias, endpoint);
            }
        }
        with_aliases(models)
    }

    fn entry(&mut self, flag: &BackendFlag) -> Option<&mut BackendEntry> {
        self.entries.iter_mut().find(|entry| entry.flag == *flag)
    }
}

fn add(
    models: &mut Vec<FleetModel>,
    name: String,
    alias: Option<String>,
    endpoint: EndpointConfig,
) {
    let index = models.iter().position(|model| model.name == name);
    let index = index.unwrap_or_else(|| {
        models.push(FleetModel::new(name));
        models.len() - 1
    });
    let model = &mut models[index];
    model.aliases.extend(alias);
    if !model.endpoints.contains(&endpoint) {
        model.endpoints.push(endpoint);
    }
}

/// Removes aliases that are taken, and gives the only model an alias.
fn with_aliases(mut models: Vec<FleetModel>) -> Fleet {
    if let [only] = models.as_mut_slice() {
        only.aliases.push(DEFAULT_ALIAS.to_owned());
    }
    let mut taken: HashSet<String> = models.iter().map(|model| model.name.clone()).collect();
    for model in &mut models {
        model.aliases.retain(|alias| taken.insert(alias.clone()));
    }
    let fleet = Fleet::default().with_models(models);
    fleet.expect("all names and aliases differ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::BackendKind;

    fn flag(text: &str) -> BackendFlag {
        text.parse().unwrap()
    }

    fn summary(fleet: &Fleet) -> Vec<String> {
        let models = fleet.models().iter();
        models
            .map(|m| format!("{} {:?} {}", m.name, m.aliases, m.endpoints.len()))
            .collect()
    }

    #[test]
    fn every_model_gets_all_backends_that_have_it() {
        let flags = [flag("http://a:1"), flag("http://b:1")];
        let mut backends = LearnedBackends::new(&flags);
        assert!(backends.fleet().models().is_empty());
        let named = |names: &[&str]| LearnedBackend {
            kind: BackendKind::OpenAi,
            models: names
                .iter()
                .map(|n| LearnedModel::Named((*n).to_owned()))
                .collect(),
        };
        assert!(backends.learned(&flags[0], named(&["x", "y"])));
        assert!(backends.learned(&flags[1], named(&["y"])));
        assert!(!backends.learned(&flags[1], named(&["y"])));
        assert_eq!(summary(&backends.fleet()), ["x [] 1", "y [] 2"]);
        backends.learned(&flags[0], named(&["y"]));
        assert_eq!(summary(&backends.fleet()), [r#"y ["default"] 2"#]);
    }

    #[test]
    fn cog_servers_with_the_same_schema_are_one_model() {
        let flags = [flag("http://a:1"), flag("http://b:1"), flag("http://c:1")];
        let mut backends = LearnedBackends::new(&flags);
        let unnamed = |schema| LearnedBackend {
            kind: BackendKind::Cog,
            models: vec![LearnedModel::Unnamed { schema }],
        };
        backends.learned(&flags[1], unnamed(1));
        assert_eq!(summary(&backends.fleet()), [r#"b:1 ["default"] 1"#]);
        // The name stays when a backend that comes first in the list is learned later.
        backends.learned(&flags[0], unnamed(1));
        backends.learned(&flags[2], unnamed(2));
        assert_eq!(summary(&backends.fleet()), [r#"b:1 ["a:1"] 2"#, "c:1 [] 1"]);
    }
}
