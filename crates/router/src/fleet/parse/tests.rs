use std::io;
use std::path::Path;
use std::time::Duration;

use crate::fleet::{
    Affinity, Algorithm, BackendKind, Discovery, Fleet, FleetSource, HttpVersion, PriorityClass,
    SecretSource, Strategy, parse_fleet,
};

/// Secrets of the tests. No message may contain them.
const SECRETS: [&str; 3] = ["from-a-file", "from-the-environment", "literal-secret"];

struct TestSecrets;

impl SecretSource for TestSecrets {
    fn file(&self, path: &Path) -> io::Result<String> {
        match path.to_str() {
            Some("etc/backend.key" | "/abs/backend.key") => Ok("from-a-file\n".to_owned()),
            Some("etc/empty.key") => Ok(" \n".to_owned()),
            Some("etc/binary.key") => Ok("from-a-file\u{1}".to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        (name == "BACKEND_KEY").then(|| "from-the-environment".to_owned())
    }
}

fn parse(text: &str) -> Result<Fleet, String> {
    let source = FleetSource {
        path: Path::new("etc/fleet.toml"),
        text,
        settings: &["port", "drain_timeout"],
    };
    parse_fleet(source, &TestSecrets).map_err(|error| error.to_string())
}

const HASH: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789ABCDEF";
const HASH_2: &str = "sha256:1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A file with every key.
fn complete() -> String {
    format!(
        r#"
port = 8080
site = "ams"

[limits]
buffer = "1MiB"
waiting_memory = "2MiB"

[dns]
servers = ["127.0.0.1:8600", "::1"]
interval = "10s"

[consul]
url = "http://consul:8500"
token = {{ env = "BACKEND_KEY" }}
datacenter = "dc1"

[probe]
interval = "1s"
timeout = "500ms"

[events]
socket = "/run/events.sock"

[[remote_site]]
name = "fra"
urls = ["https://router.fra.example:8080"]
step = 1
flow = "eu"
key_file = "backend.key"

[[remote_site]]
name = "lon"
dns = "router.lon.example:8080"
key = "literal-secret"

[[model]]
name = "@cf/meta/llama-3.1-8b-instruct"
aliases = ["llama-3.1-8b"]
sites = ["fra"]
queue = {{ algorithm = "fifo", capacity = 2, site_capacity = 3, max_wait = "5s" }}
routing = {{ strategy = "forced-flow", params = {{ flow = "eu", max_step = 2 }} }}
timeout = {{ total = "1m", idle = 10, first_byte = "20s" }}
retry = {{ errors = 1, capacity = {{ small = 4, large = 0 }}, budget = 0.5, entry = 2 }}
affinity = {{ by = "prefix" }}
websocket = {{ max_duration = "2h" }}
cost = {{ neurons_per_token = 0.1, neurons_per_request = 2 }}

[[model.endpoint]]
url = "http://10.0.0.5:8000/base"
kind = "tgi"
upstream_model = "meta-llama/Llama-3.1-8B-Instruct"
permits = 8
site = "ams"
weight = 2
http = 2
headers = {{ Authorization = {{ file = "backend.key" }}, x-key = {{ env = "BACKEND_KEY" }}, x-plain = "literal-secret" }}
probe_path = "/healthz"
loopback = "/events"
detach_timeout = "1m"
cancel_grace = "0s"

[[model.endpoint]]
dns = "llama.svc:8000"
[[model.endpoint]]
srv = "_http._tcp.llama"
[[model.endpoint]]
consul = "llama"
site = "fra"
[[model.endpoint]]
join = true

[[account]]
name = "acme"
token_hash = "{HASH}"
max_concurrent = 32
rate = "600/min"
priority = "high"
admin = true

[[join_key]]
name = "gpus"
key_hash = "{HASH_2}"
models = ["@cf/meta/llama-3.1-8b-instruct"]
networks = ["10.0.0.0/8", "192.168.1.7"]
max_ttl = "2m"
"#
    )
}

#[test]
fn every_key_reaches_the_configuration() {
    let fleet = parse(&complete()).unwrap();
    assert_eq!(
        (fleet.limits.buffer, fleet.limits.waiting_memory),
        (1 << 20, 2 << 20)
    );
    assert_eq!(fleet.dns.servers[1].to_string(), "[::1]:53");
    assert_eq!(fleet.consul.token.as_deref(), Some("from-the-environment"));
    assert_eq!(fleet.probe.timeout, Duration::from_millis(500));
    assert_eq!(
        fleet.events_socket.as_deref(),
        Some(Path::new("/run/events.sock"))
    );
    assert_eq!(fleet.sites[0].step, 1);
    assert_eq!(fleet.sites[0].key.as_ref().unwrap().value, "from-a-file");
    assert_eq!(
        fleet.sites[1].dns.as_deref(),
        Some("router.lon.example:8080")
    );

    let model = fleet.model("llama-3.1-8b").unwrap();
    assert_eq!(model.sites, ["fra"]);
    assert_eq!(
        (model.queue.algorithm, model.queue.capacity),
        (Algorithm::Fifo, 2)
    );
    assert_eq!(model.routing.strategy, Strategy::ForcedFlow);
    assert_eq!(model.routing.params["max_step"], "2");
    assert_eq!(model.timeout.idle, Duration::from_secs(10));
    assert_eq!(
        (
            model.retry.errors,
            model.retry.capacity.small,
            model.retry.entry
        ),
        (1, 4, 2)
    );
    assert_eq!(model.affinity, Affinity::Prefix);
    assert_eq!(model.cost.neurons_per_request, 2.0);

    let [first, dns, srv, consul, join] = model.endpoints.as_slice() else {
        panic!("five endpoints");
    };
    assert_eq!(
        (first.kind, first.http),
        (BackendKind::Tgi, HttpVersion::Http2)
    );
    assert_eq!((first.permits, first.site.as_str()), (Some(8), ""));
    assert_eq!(first.cancel_grace, Duration::ZERO);
    let headers: Vec<_> = first
        .headers
        .iter()
        .map(|h| (h.name.as_str(), h.value.as_str()))
        .collect();
    assert_eq!(
        headers,
        [
            ("authorization", "Bearer from-a-file"),
            ("x-key", "from-the-environment"),
            ("x-plain", "literal-secret"),
        ]
    );
    assert_eq!(dns.address, Discovery::Dns("llama.svc:8000".into()));
    assert_eq!(srv.address, Discovery::Srv("_http._tcp.llama".into()));
    assert_eq!(
        (&consul.address, consul.site.as_str()),
        (&Discovery::Consul("llama".into()), "fra")
    );
    assert_eq!(join.address, Discovery::Join);

    let account = &fleet.accounts[0];
    assert_eq!(account.token_hash, HASH["sha256:".len()..].to_lowercase());
    assert_eq!(
        (account.max_concurrent, account.priority),
        (Some(32), PriorityClass::High)
    );
    assert_eq!(fleet.join_keys[0].max_ttl, Duration::from_secs(120));
}

#[test]
fn omitted_keys_have_defaults() {
    let fleet = parse("[[model]]\nname = \"a\"\n[[model.endpoint]]\nurl = \"http://h:1\"").unwrap();
    let model = fleet.model("a").unwrap();
    assert_eq!(
        **model,
        crate::fleet::FleetModel {
            endpoints: model.endpoints.clone(),
            ..crate::fleet::FleetModel::new("a")
        }
    );
    let url = Discovery::Url(crate::fleet::BackendUrl::parse("http://h:1").unwrap());
    assert_eq!(
        model.endpoints,
        [crate::fleet::EndpointConfig::new(url, BackendKind::OpenAi)]
    );
}

#[test]
fn the_configuration_never_prints_a_secret() {
    let printed = format!("{:?}", parse(&complete()).unwrap());
    for secret in SECRETS {
        assert!(!printed.contains(secret), "{printed}");
    }
    assert!(
        !printed
            .to_lowercase()
            .contains(&HASH["sha256:".len()..].to_lowercase())
    );
}

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
