//! Accounts and join keys.

use std::collections::HashMap;
use std::time::Duration;

use ipnet::IpNet;
use tidegate_core::{Account, units};
use toml::Spanned;

use super::checker::FleetChecker;
use crate::fleet::file::{AccountFile, FleetFile, JoinKeyFile, Key};
use crate::fleet::file_values::FileSecret;
use crate::fleet::syntax::closest;
use crate::fleet::{AccountConfig, JoinKey, PriorityClass};

const NEW_TOKEN: &str = "`tidegate token new --account NAME` creates a token and prints `sha256:…` and 64 hexadecimal digits";
/// The default of `max_ttl`.
const MAX_TTL: Duration = Duration::from_secs(60 * 60);

pub(super) fn accounts(
    checker: &mut FleetChecker<'_>,
    files: &[Spanned<AccountFile>],
) -> Vec<AccountConfig> {
    let (mut names, mut hashes) = (HashMap::new(), HashMap::new());
    let accounts = files.iter().filter_map(|file| {
        let table = file.span();
        let file = file.get_ref();
        let name = checker.required(
            &table,
            "the account has no name",
            &file.name,
            "add `name = \"…\"`",
        );
        let account = name.and_then(|name| {
            checker.unique(&mut names, "accounts", name);
            let parsed = Account::parse(name.get_ref());
            parsed
                .map_err(|error| {
                    checker.problem(name.span(), error.to_string(), "choose another name");
                })
                .ok()
        });
        let token_hash = hash(
            checker,
            &table,
            "the account has no token_hash",
            &file.token_hash,
        );
        if let (Some(hash), Some(value)) = (&token_hash, &file.token_hash) {
            unique_hash(checker, &mut hashes, hash, value);
        }
        Some(AccountConfig {
            account: account?,
            token_hash: token_hash?,
            max_concurrent: file
                .max_concurrent
                .is_some()
                .then(|| checker.whole("max_concurrent", &file.max_concurrent, 1..=u32::MAX, 1)),
            rate: file.rate.as_ref().and_then(|rate| {
                let text = rate.get_ref();
                units::rate(text)
                    .map_err(|fix| {
                        checker.problem(
                            rate.span(),
                            format!("`{text}` is not valid for `rate`"),
                            fix,
                        );
                    })
                    .ok()
            }),
            priority: checker.choice(
                "priority",
                &file.priority,
                &[
                    ("high", PriorityClass::High),
                    ("normal", PriorityClass::Normal),
                    ("low", PriorityClass::Low),
                ],
            ),
            admin: file.admin.as_ref().is_some_and(|admin| *admin.get_ref()),
        })
    });
    accounts.collect()
}

/// A required `sha256:HEX`, without its prefix and in lower case.
fn hash(
    checker: &mut FleetChecker<'_>,
    table: &std::ops::Range<usize>,
    missing: &str,
    value: &Key<FileSecret>,
) -> Option<String> {
    let value = checker.required(table, missing, value, NEW_TOKEN)?;
    let text = checker.secret("hash", value)?;
    let digits = text
        .strip_prefix("sha256:")
        .filter(|digits| digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()));
    if digits.is_none() {
        checker.problem(value.span(), "this is not the hash of a token", NEW_TOKEN);
    }
    digits.map(str::to_ascii_lowercase)
}

/// Two accounts cannot have one token: a request would belong to both.
fn unique_hash(
    checker: &mut FleetChecker<'_>,
    seen: &mut HashMap<String, std::ops::Range<usize>>,
    hash: &str,
    value: &Spanned<FileSecret>,
) {
    match seen.get(hash) {
        Some(first) => {
            let line = checker.line(first);
            checker.problem(
                value.span(),
                format!("line {line} has the same hash"),
                "create a token for each account with `tidegate token new --account NAME`",
            );
        }
        None => {
            seen.insert(hash.to_owned(), value.span());
        }
    }
}

pub(super) fn join_keys(checker: &mut FleetChecker<'_>, file: &FleetFile) -> Vec<JoinKey> {
    let known: Vec<&str> = file
        .model
        .iter()
        .filter_map(|model| Some(model.get_ref().name.as_ref()?.get_ref().as_str()))
        .collect();
    let (mut names, mut hashes) = (HashMap::new(), HashMap::new());
    let keys = file.join_key.iter().filter_map(|key| {
        let table = key.span();
        let key = key.get_ref();
        let name = checker.required(
            &table,
            "the join key has no name",
            &key.name,
            "add `name = \"…\"`, which appears in logs",
        );
        if let Some(name) = name {
            checker.unique(&mut names, "join keys", name);
        }
        let key_hash = hash(
            checker,
            &table,
            "the join key has no key_hash",
            &key.key_hash,
        );
        if let (Some(hash), Some(value)) = (&key_hash, &key.key_hash) {
            unique_hash(checker, &mut hashes, hash, value);
        }
        check_models(checker, &table, key, &known);
        let networks = networks(checker, &table, key);
        Some(JoinKey {
            name: name?.get_ref().clone(),
            key_hash: key_hash?,
            models: key.models.iter().map(|m| m.get_ref().clone()).collect(),
            networks,
            max_ttl: checker.duration("max_ttl", &key.max_ttl, MAX_TTL),
        })
    });
    keys.collect()
}

fn check_models(
    checker: &mut FleetChecker<'_>,
    table: &std::ops::Range<usize>,
    key: &JoinKeyFile,
    known: &[&str],
) {
    if key.models.is_empty() {
        checker.problem(
            table.clone(),
            "the join key has no models",
            "add `models = [\"NAME\", …]`, or `models = [\"*\"]` for all",
        );
    }
    for model in &key.models {
        let name = model.get_ref().as_str();
        if name != "*" && !known.contains(&name) {
            let fix = match closest(name, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "add a `[[model]]` with this name".to_owned(),
            };
            checker.problem(model.span(), format!("there is no model `{name}`"), fix);
        }
    }
}

fn networks(
    checker: &mut FleetChecker<'_>,
    table: &std::ops::Range<usize>,
    key: &JoinKeyFile,
) -> Vec<IpNet> {
    if key.networks.is_empty() {
        checker.problem(
            table.clone(),
            "the join key has no networks",
            "add the networks of the backends, such as `networks = [\"10.0.0.0/8\"]`",
        );
    }
    let networks = key.networks.iter().filter_map(|network| {
        let text = network.get_ref();
        let parsed = text
            .parse::<IpNet>()
            .ok()
            .or_else(|| Some(IpNet::from(text.parse::<std::net::IpAddr>().ok()?)));
        if parsed.is_none() {
            checker.problem(
                network.span(),
                format!("`{text}` is not a network"),
                "write a network or an address, such as `10.0.0.0/8`",
            );
        }
        parsed
    });
    networks.collect()
}
