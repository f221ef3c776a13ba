//! The models.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use toml::Spanned;

use super::checker::FleetChecker;
use super::endpoint::endpoint;
use crate::fleet::file::{Key, ModelFile, RetryFile, RoutingFile, TimeoutFile};
use crate::fleet::file_values::Whole;
use crate::fleet::syntax::closest;
use crate::fleet::{
    Affinity, Algorithm, BackendUrl, CapacityRetries, CostConfig, Discovery, EndpointConfig, Fleet,
    FleetModel, QueueConfig, RetryConfig, RoutingConfig, Strategy, TimeoutConfig, WebSocketConfig,
};

/// The length of the name of a model.
const MAX_NAME_LEN: usize = 256;
/// The most retries of one request.
const MAX_RETRIES: u32 = 100;

/// What the models of a file have in common.
pub(super) struct ModelContext<'a> {
    fleet: &'a Fleet,
    /// The permits of each backend, which all models share, and where they are set.
    permits: HashMap<BackendUrl, (u32, Range<usize>)>,
}

impl ModelContext<'_> {
    /// The site of an endpoint; empty means the site of this router.
    pub(super) fn site_of(&self, checker: &mut FleetChecker<'_>, site: &Key<String>) -> String {
        match site {
            Some(site) if self.check_site(checker, site) && *site.get_ref() != self.fleet.site => {
                site.get_ref().clone()
            }
            _ => String::new(),
        }
    }

    fn check_site(&self, checker: &mut FleetChecker<'_>, site: &Spanned<String>) -> bool {
        let name = site.get_ref();
        let known = || {
            let remote = self.fleet.sites.iter().map(|site| site.name.as_str());
            remote.chain(std::iter::once(self.fleet.site.as_str()))
        };
        if known().any(|known| known == name) {
            return true;
        }
        let fix = match closest(name, known()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "add a `[[remote_site]]` with this name, or set `site` at the top of the file"
                .to_owned(),
        };
        checker.problem(site.span(), format!("there is no site `{name}`"), fix);
        false
    }

    /// A backend has one limit, whichever model uses it.
    pub(super) fn check_permits(
        &mut self,
        checker: &mut FleetChecker<'_>,
        endpoint: &EndpointConfig,
        value: &Spanned<Whole>,
    ) {
        let (Discovery::Url(url), Some(permits)) = (&endpoint.address, endpoint.permits) else {
            return;
        };
        match self.permits.get(url) {
            Some((other, first)) if *other != permits => {
                let line = checker.line(first);
                checker.problem(
                    value.span(),
                    format!("`{url}` has {permits} permits here and {other} in line {line}"),
                    "write the same number; all models of a backend share its permits",
                );
            }
            Some(_) => {}
            None => {
                self.permits.insert(url.clone(), (permits, value.span()));
            }
        }
    }
}

pub(super) fn models(
    checker: &mut FleetChecker<'_>,
    fleet: &Fleet,
    files: &[Spanned<ModelFile>],
) -> Vec<FleetModel> {
    if files.is_empty() {
        checker.problem(
            0..0,
            "the file has no models",
            "add a `[[model]]` with a `[[model.endpoint]]`",
        );
    }
    let mut names = HashMap::new();
    let mut context = ModelContext {
        fleet,
        permits: HashMap::new(),
    };
    let models = files.iter().filter_map(|file| {
        let table = file.span();
        let file = file.get_ref();
        let name = checker.required(
            &table,
            "the model has no name",
            &file.name,
            "add `name = \"…\"`",
        );
        for name in name.into_iter().chain(&file.aliases) {
            checker.unique(&mut names, "models", name);
            check_name(checker, name);
        }
        let model = model(checker, &mut context, &table, file);
        Some(FleetModel {
            name: name?.get_ref().clone(),
            ..model
        })
    });
    models.collect()
}

/// Names are parts of paths, headers and metrics.
fn check_name(checker: &mut FleetChecker<'_>, name: &Spanned<String>) {
    let text = name.get_ref();
    let is_valid = (1..=MAX_NAME_LEN).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && !b"?#%\"\\".contains(&b))
        && !text.starts_with('/')
        && !text.ends_with('/');
    if !is_valid {
        checker.problem(
            name.span(),
            format!("{text:?} is not the name of a model"),
            format!(
                "use 1 to {MAX_NAME_LEN} visible ASCII characters other than ? # % \" \\, with `/` only inside"
            ),
        );
    }
}

fn model(
    checker: &mut FleetChecker<'_>,
    context: &mut ModelContext<'_>,
    table: &Range<usize>,
    file: &ModelFile,
) -> FleetModel {
    let valid = file
        .sites
        .iter()
        .filter(|site| context.check_site(checker, site));
    let sites = valid.map(|site| site.get_ref().clone());
    let sites = sites.collect();
    let queue = QueueConfig::default();
    FleetModel {
        name: String::new(),
        aliases: file.aliases.iter().map(|a| a.get_ref().clone()).collect(),
        sites,
        queue: QueueConfig {
            algorithm: checker.choice(
                "algorithm",
                &file.queue.algorithm,
                &[("fair", Algorithm::Fair), ("fifo", Algorithm::Fifo)],
            ),
            capacity: checker.whole("capacity", &file.queue.capacity, 0..=1000, queue.capacity),
            site_capacity: checker.whole(
                "site_capacity",
                &file.queue.site_capacity,
                0..=1000,
                queue.site_capacity,
            ),
            max_wait: checker.delay("max_wait", &file.queue.max_wait, queue.max_wait),
        },
        routing: routing(checker, context, &file.routing),
        timeout: timeout(checker, &file.timeout),
        retry: retry(checker, &file.retry),
        affinity: checker.choice(
            "affinity",
            &file.affinity.by,
            &[
                ("none", Affinity::None),
                ("session", Affinity::Session),
                ("prefix", Affinity::Prefix),
            ],
        ),
        websocket: WebSocketConfig {
            max_duration: checker.duration(
                "max_duration",
                &file.websocket.max_duration,
                WebSocketConfig::default().max_duration,
            ),
        },
        cost: cost(checker, file),
        endpoints: endpoints(checker, context, table, file),
    }
}

fn endpoints(
    checker: &mut FleetChecker<'_>,
    context: &mut ModelContext<'_>,
    table: &Range<usize>,
    file: &ModelFile,
) -> Vec<EndpointConfig> {
    let has_other_routers = context
        .fleet
        .sites
        .iter()
        .any(|site| !site.urls.is_empty() || site.dns.is_some());
    if file.endpoint.is_empty() && !has_other_routers {
        checker.problem(
            table.clone(),
            "the model has no endpoint, and no remote site could serve it",
            "add a `[[model.endpoint]]` with `url = \"http://HOST:PORT\"`",
        );
    }
    let mut seen: HashMap<Discovery, Range<usize>> = HashMap::new();
    let mut endpoints = Vec::new();
    for file in &file.endpoint {
        let Some(endpoint) = endpoint(checker, context, file) else {
            continue;
        };
        if let Some(first) = seen.get(&endpoint.address) {
            let line = checker.line(first);
            checker.problem(
                file.span(),
                format!("the model has the endpoint `{}` twice", endpoint.address),
                format!("remove one of them; line {line} has the other"),
            );
        }
        seen.insert(endpoint.address.clone(), file.span());
        endpoints.push(endpoint);
    }
    check_join(checker, context.fleet, table, file, &endpoints);
    endpoints
}

/// A model that backends may join needs a key.
fn check_join(
    checker: &mut FleetChecker<'_>,
    fleet: &Fleet,
    table: &Range<usize>,
    file: &ModelFile,
    endpoints: &[EndpointConfig],
) {
    let name = file.name.as_ref().map_or("", |name| name.get_ref());
    let may_join = endpoints
        .iter()
        .any(|endpoint| endpoint.address == Discovery::Join);
    let has_key = fleet
        .join_keys
        .iter()
        .any(|key| key.models.iter().any(|model| model == "*" || model == name));
    if may_join && !has_key {
        checker.problem(
            table.clone(),
            format!("backends may join `{name}`, but no join key allows it"),
            format!("add a `[[join_key]]` with `models = [\"{name}\"]`"),
        );
    }
}

fn routing(
    checker: &mut FleetChecker<'_>,
    context: &ModelContext<'_>,
    file: &RoutingFile,
) -> RoutingConfig {
    let strategy = checker.choice(
        "strategy",
        &file.strategy,
        &[
            ("random", Strategy::Random),
            ("latency", Strategy::Latency),
            ("forced-site", Strategy::ForcedSite),
            ("forced-flow", Strategy::ForcedFlow),
        ],
    );
    let mut params = BTreeMap::new();
    for (name, value) in &file.params {
        let text = value.get_ref().0.clone();
        match name.get_ref().as_str() {
            "site" => {
                let site = Spanned::new(value.span(), text.clone());
                context.check_site(checker, &site);
            }
            "flow" => check_flow(checker, context.fleet, value.span(), &text),
            "max_step" if text.parse::<u32>().is_ok() => {}
            "max_step" => checker.problem(
                value.span(),
                format!("`{text}` is not valid for `max_step`"),
                "write the highest step that the strategy `latency` uses, such as 2",
            ),
            other => {
                let known = ["flow", "max_step", "site"];
                let fix = match closest(other, known.into_iter()) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("the parameters are {}", known.join(", ")),
                };
                checker.problem(
                    name.span(),
                    format!("there is no routing parameter `{other}`"),
                    fix,
                );
            }
        }
        params.insert(name.get_ref().clone(), text);
    }
    let needed = match strategy {
        Strategy::ForcedSite => Some("site"),
        Strategy::ForcedFlow => Some("flow"),
        Strategy::Random | Strategy::Latency => None,
    };
    if let (Some(needed), Some(given)) = (needed, &file.strategy)
        && !params.contains_key(needed)
    {
        let name = given.get_ref();
        checker.problem(
            given.span(),
            format!("the strategy `{name}` needs the parameter `{needed}`"),
            format!(
                "write `routing = {{ strategy = \"{name}\", params = {{ {needed} = \"NAME\" }} }}`"
            ),
        );
    }
    RoutingConfig { strategy, params }
}

fn check_flow(checker: &mut FleetChecker<'_>, fleet: &Fleet, span: Range<usize>, flow: &str) {
    let known = || fleet.sites.iter().filter_map(|site| site.flow.as_deref());
    if !known().any(|known| known == flow) {
        let fix = match closest(flow, known()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "add `flow` to the `[[remote_site]]` that belong to it".to_owned(),
        };
        checker.problem(span, format!("no site has the flow `{flow}`"), fix);
    }
}

fn timeout(checker: &mut FleetChecker<'_>, file: &TimeoutFile) -> TimeoutConfig {
    let default = TimeoutConfig::default();
    let total = checker.duration("total", &file.total, default.total);
    let first_byte = file
        .first_byte
        .is_some()
        .then(|| checker.duration("first_byte", &file.first_byte, total));
    if let (Some(first_byte), Some(value)) = (first_byte, &file.first_byte)
        && first_byte > total
    {
        checker.problem(
            value.span(),
            format!("`first_byte` is longer than `total`, which is {total:?}"),
            "write a shorter time, or a longer `total`",
        );
    }
    TimeoutConfig {
        total,
        idle: checker.duration("idle", &file.idle, default.idle),
        first_byte,
    }
}

fn retry(checker: &mut FleetChecker<'_>, file: &RetryFile) -> RetryConfig {
    let default = RetryConfig::default();
    let CapacityRetries { small, large } = default.capacity;
    let mut count =
        |key, value: &Key<Whole>, default| checker.whole(key, value, 0..=MAX_RETRIES, default);
    let errors = count("errors", &file.errors, default.errors);
    let entry = count("entry", &file.entry, default.entry);
    let capacity = CapacityRetries {
        small: count("small", &file.capacity.small, small),
        large: count("large", &file.capacity.large, large),
    };
    let budget = checker.decimal(
        "budget",
        &file.budget,
        |share| (0.0..=1.0).contains(&share),
        "write the share of retries in the traffic, from 0 to 1, such as 0.2",
    );
    RetryConfig {
        errors,
        capacity,
        budget: budget.unwrap_or(default.budget),
        entry,
    }
}

fn cost(checker: &mut FleetChecker<'_>, file: &ModelFile) -> CostConfig {
    let mut price = |key, value| {
        let price = checker.decimal(
            key,
            value,
            |price| price >= 0.0,
            "write a number of at least 0",
        );
        price.unwrap_or(0.0)
    };
    CostConfig {
        neurons_per_token: price("neurons_per_token", &file.cost.neurons_per_token),
        neurons_per_request: price("neurons_per_request", &file.cost.neurons_per_request),
    }
}
