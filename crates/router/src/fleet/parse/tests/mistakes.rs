//! Every mistake of a configuration file that the parser knows, and the place and the fix that its message names.

use super::{HASH, HASH_2, SECRETS, parse};

/// A model with an endpoint, and these lines in its tables.
fn with(model: &str, endpoint: &str, rest: &str) -> String {
    format!(
        "[[model]]\nname = \"a\"\n{model}\n[[model.endpoint]]\nurl = \"http://h:1\"\n{endpoint}\n{rest}\n"
    )
}

/// A model whose endpoint consists of these lines.
fn endpoint(lines: &str) -> String {
    format!("[[model]]\nname = \"a\"\n[[model.endpoint]]\n{lines}\n")
}

/// What each mistake is, and the file with it.
fn mistakes() -> Vec<(&'static str, String)> {
    let mut mistakes = Vec::new();
    mistakes.extend(structure());
    mistakes.extend(models());
    mistakes.extend(endpoints());
    mistakes.extend(access());
    mistakes.extend(sites());
    mistakes
}

fn structure() -> Vec<(&'static str, String)> {
    vec![
        ("syntax", "[[model]\nname = \"a\"".into()),
        (
            "a string that is not closed",
            "[[model]]\nname = \"literal-secret\n".into(),
        ),
        (
            "key twice",
            "[[model]]\nname = \"a\"\nname = \"b\"\n".into(),
        ),
        (
            "own site and sites under one key",
            "site = \"ams\"\n[[site]]\nname = \"fra\"\n".into(),
        ),
        (
            "sites under the key of the own site",
            "[[site]]\nname = \"fra\"\n".into(),
        ),
        ("no models", "site = \"ams\"\n".into()),
        ("unknown key at the top", "sites = \"ams\"\n".into()),
        ("setting with a mistake", "drain_timeuot = \"1s\"\n".into()),
        ("setting in a table", with("drain_timeout = \"1s\"", "", "")),
        ("unknown key in a model", with("alias = [\"b\"]", "", "")),
        (
            "unknown key in a nested table",
            with("queue = { capactiy = 4 }", "", ""),
        ),
        ("unknown key without a similar one", with("", "zzz = 1", "")),
        (
            "table instead of a string",
            "[[model]]\nname = { x = 1 }\n".into(),
        ),
        (
            "string instead of a table",
            with("", "headers = \"literal-secret\"", ""),
        ),
        (
            "string instead of a number",
            with("", "permits = \"literal-secret\"", ""),
        ),
        (
            "fraction instead of a whole number",
            with("", "permits = 1.5", ""),
        ),
        ("number instead of a list", with("aliases = 5", "", "")),
    ]
}

fn models() -> Vec<(&'static str, String)> {
    vec![
        (
            "model without name",
            "[[model]]\n[[model.endpoint]]\nurl = \"http://h:1\"".into(),
        ),
        ("model without endpoint", "[[model]]\nname = \"a\"".into()),
        (
            "empty model name",
            "[[model]]\nname = \"\"\n[[model.endpoint]]\nurl = \"http://h:1\"".into(),
        ),
        (
            "model name with a space",
            "[[model]]\nname = \"a b\"\n[[model.endpoint]]\nurl = \"http://h:1\"".into(),
        ),
        ("two models with one name", with("", "", &with("", "", ""))),
        (
            "alias equals the name of a model",
            with(
                "",
                "",
                "[[model]]\nname = \"b\"\naliases = [\"a\"]\n[[model.endpoint]]\nurl = \"http://h:1\"",
            ),
        ),
        (
            "unknown algorithm",
            with("queue = { algorithm = \"fiar\" }", "", ""),
        ),
        (
            "capacity out of range",
            with("queue = { capacity = -1, site_capacity = 1001 }", "", ""),
        ),
        (
            "max_wait without unit",
            with("queue = { max_wait = \"soon\" }", "", ""),
        ),
        (
            "unknown strategy",
            with("routing = { strategy = \"fastest\" }", "", ""),
        ),
        (
            "forced-site without site",
            with("routing = { strategy = \"forced-site\" }", "", ""),
        ),
        (
            "forced-site with an unknown site",
            with(
                "routing = { strategy = \"forced-site\", params = { site = \"fra\" } }",
                "",
                "",
            ),
        ),
        (
            "forced-flow without flow",
            with("routing = { strategy = \"forced-flow\" }", "", ""),
        ),
        (
            "forced-flow with an unknown flow",
            with(
                "routing = { strategy = \"forced-flow\", params = { flow = \"eu\" } }",
                "",
                "",
            ),
        ),
        (
            "unknown routing parameter",
            with("routing = { params = { max_setp = 1 } }", "", ""),
        ),
        (
            "step that is not a number",
            with("routing = { params = { max_step = \"near\" } }", "", ""),
        ),
        ("timeout of 0", with("timeout = { total = \"0s\" }", "", "")),
        (
            "first_byte above total",
            with("timeout = { total = \"5s\", first_byte = \"10s\" }", "", ""),
        ),
        (
            "retry budget above 1",
            with("retry = { budget = 20 }", "", ""),
        ),
        ("too many retries", with("retry = { errors = 101 }", "", "")),
        (
            "unknown affinity",
            with("affinity = { by = \"user\" }", "", ""),
        ),
        (
            "negative cost",
            with("cost = { neurons_per_token = -0.1 }", "", ""),
        ),
        ("unknown site of a model", with("sites = [\"fra\"]", "", "")),
    ]
}

fn endpoints() -> Vec<(&'static str, String)> {
    vec![
        ("no address", endpoint("permits = 1")),
        (
            "two addresses",
            endpoint("url = \"http://h:1\"\nsrv = \"_http._tcp.x\""),
        ),
        ("join is false", endpoint("join = false")),
        ("URL without scheme", endpoint("url = \"10.0.0.5:8000\"")),
        (
            "URL with a password",
            endpoint("url = \"http://ann:literal-secret@h:1\""),
        ),
        ("dns without port", endpoint("dns = \"llama.svc\"")),
        ("srv with a space", endpoint("srv = \"_http _tcp\"")),
        ("empty consul service", endpoint("consul = \"\"")),
        ("join without a key", endpoint("join = true")),
        (
            "same endpoint twice",
            with("", "", "[[model.endpoint]]\nurl = \"http://h:1\""),
        ),
        (
            "other permits for the same backend",
            with(
                "",
                "permits = 4",
                "[[model]]\nname = \"b\"\n[[model.endpoint]]\nurl = \"http://h:1\"\npermits = 8",
            ),
        ),
        ("unknown kind", with("", "kind = \"vllm\"", "")),
        ("misspelled kind", with("", "kind = \"tritn\"", "")),
        ("no permits", with("", "permits = 0", "")),
        ("weight of 0", with("", "weight = 0", "")),
        ("weight that is not finite", with("", "weight = inf", "")),
        ("http = 3", with("", "http = 3", "")),
        ("unknown site", with("", "site = \"ams\"", "")),
        (
            "empty upstream_model",
            with("", "upstream_model = \" \"", ""),
        ),
        (
            "loopback without slash",
            with("", "loopback = \"events\"", ""),
        ),
        (
            "probe_path without slash",
            with("", "probe_path = \"health\"", ""),
        ),
        (
            "unreadable key file",
            with(
                "",
                "headers = { authorization = { file = \"missing.key\" } }",
                "",
            ),
        ),
        (
            "empty key file",
            with(
                "",
                "headers = { authorization = { file = \"empty.key\" } }",
                "",
            ),
        ),
        (
            "key file with a control character",
            with(
                "",
                "headers = { authorization = { file = \"binary.key\" } }",
                "",
            ),
        ),
        (
            "variable that is not set",
            with(
                "",
                "headers = { authorization = { env = \"MISSING\" } }",
                "",
            ),
        ),
        (
            "secret with two sources",
            with(
                "",
                "headers = { authorization = { env = \"BACKEND_KEY\", file = \"backend.key\" } }",
                "",
            ),
        ),
        (
            "secret without source",
            with("", "headers = { authorization = {} }", ""),
        ),
        (
            "unknown source of a secret",
            with(
                "",
                "headers = { authorization = { path = \"backend.key\" } }",
                "",
            ),
        ),
        (
            "reserved header",
            with("", "headers = { Host = \"x\" }", ""),
        ),
        (
            "invalid header name",
            with("", "headers = { \"a b\" = \"x\" }", ""),
        ),
    ]
}

fn access() -> Vec<(&'static str, String)> {
    let account = |lines: &str| with("", "", &format!("[[account]]\n{lines}"));
    let join_key = |lines: &str| with("", "", &format!("[[join_key]]\n{lines}"));
    let hash = format!("token_hash = \"{HASH}\"");
    let named = format!("name = \"acme\"\n{hash}");
    let key = format!("name = \"k\"\nkey_hash = \"{HASH}\"");
    vec![
        ("account without name", account(&hash)),
        (
            "account with an invalid name",
            account(&format!("name = \"a b\"\n{hash}")),
        ),
        ("account without hash", account("name = \"acme\"")),
        (
            "token instead of its hash",
            account("name = \"acme\"\ntoken_hash = \"literal-secret\""),
        ),
        (
            "two accounts with one name",
            account(&format!(
                "{named}\n[[account]]\nname = \"acme\"\ntoken_hash = \"{HASH_2}\""
            )),
        ),
        (
            "two accounts with one token",
            account(&format!("{named}\n[[account]]\nname = \"b\"\n{hash}")),
        ),
        (
            "no concurrent requests",
            account(&format!("{named}\nmax_concurrent = 0")),
        ),
        ("rate of 0", account(&format!("{named}\nrate = \"0/s\""))),
        (
            "rate without period",
            account(&format!("{named}\nrate = \"600\"")),
        ),
        (
            "unknown priority",
            account(&format!("{named}\npriority = \"urgent\"")),
        ),
        (
            "join key without name, models and networks",
            join_key(&format!("key_hash = \"{HASH}\"")),
        ),
        (
            "join key for an unknown model",
            join_key(&format!(
                "{key}\nmodels = [\"b\"]\nnetworks = [\"10.0.0.0/8\"]"
            )),
        ),
        (
            "join key with an invalid network",
            join_key(&format!("{key}\nmodels = [\"*\"]\nnetworks = [\"lan\"]")),
        ),
    ]
}

fn sites() -> Vec<(&'static str, String)> {
    let site = |lines: &str| with("", "", &format!("[[remote_site]]\n{lines}"));
    vec![
        (
            "invalid name of the own site",
            "site = \"a b\"\n".to_owned() + &with("", "", ""),
        ),
        ("site without name", site("urls = [\"http://h:1\"]")),
        (
            "site with an invalid URL",
            site("name = \"fra\"\nurls = [\"h\"]"),
        ),
        (
            "site with urls and dns",
            site("name = \"fra\"\nurls = [\"http://h:1\"]\ndns = \"h:1\""),
        ),
        (
            "site with two keys",
            site("name = \"fra\"\nkey = \"literal-secret\"\nkey_file = \"backend.key\""),
        ),
        (
            "site with an unreadable key",
            site("name = \"fra\"\nkey_file = \"missing.key\""),
        ),
        (
            "two sites with one name",
            site("name = \"fra\"\n[[remote_site]]\nname = \"fra\""),
        ),
        (
            "own site as remote site",
            "site = \"ams\"\n".to_owned() + &site("name = \"ams\""),
        ),
        ("negative step", site("name = \"fra\"\nstep = -1")),
        (
            "limit without unit",
            "[limits]\nbuffer = \"much\"\n".to_owned() + &with("", "", ""),
        ),
        (
            "name server that is a name",
            "[dns]\nservers = [\"ns.example\"]\n".to_owned() + &with("", "", ""),
        ),
        (
            "interval of 0",
            "[dns]\ninterval = 0\n[probe]\ninterval = \"0s\"\n".to_owned() + &with("", "", ""),
        ),
        (
            "empty socket",
            "[events]\nsocket = \"\"\n".to_owned() + &with("", "", ""),
        ),
        (
            "several mistakes",
            with(
                "queue = { capacity = -1 }",
                "permits = 0\nkind = \"x\"",
                "[[account]]\nname = \"acme\"",
            ),
        ),
    ]
}

#[test]
fn every_mistake_is_refused_with_its_place_and_a_fix() {
    let mut report = String::new();
    for (name, text) in mistakes() {
        let error = match parse(&text) {
            Ok(_) => panic!("{name} was accepted:\n{text}"),
            Err(error) => error,
        };
        for secret in SECRETS {
            assert!(!error.contains(secret), "{name}: {error}");
        }
        report += &format!("== {name}\n{error}\n\n");
    }
    insta::assert_snapshot!(report);
}
