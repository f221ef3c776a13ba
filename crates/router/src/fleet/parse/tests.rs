mod mistakes;

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
