//! The healthy instances of a service of Consul, by blocking queries of its health API.

use std::sync::Arc;
use std::time::Duration;

use hyper::{HeaderMap, Method};
use serde::Deserialize;
use tidegate_core::chain;

use super::retry_pause::RetryPause;
use super::{DiscoverySource, FoundEndpoint};
use crate::control::ControlShared;
use crate::fleet::{BackendKind, BackendUrl, ConsulConfig, HttpVersion, Scheme, SecretHeader};
use crate::outbound::OutboundRequest;

/// How long Consul may hold a query while nothing changes. It adds up to a sixteenth.
const WAIT: Duration = Duration::from_secs(55);
/// The time for an answer beyond `WAIT`.
const SLACK: Duration = Duration::from_secs(10);
/// The shortest time between two answers: an index that changes all the time must not keep both busy.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(15);

/// Reports the instances whenever they change.
pub(super) async fn run(
    control: &Arc<ControlShared>,
    source: &DiscoverySource,
    service: &str,
    config: &ConsulConfig,
) {
    let mut pause = RetryPause::new(FIRST_PAUSE, LAST_PAUSE);
    let mut index = 0;
    loop {
        match ask(control, service, config, index).await {
            Ok(answer) => {
                pause.reset();
                index = next_index(index, answer.index);
                control.source_found(source, answer.instances);
                tokio::time::sleep(MIN_INTERVAL).await;
            }
            Err(error) => {
                control.source_failed(source, error);
                // The agent may have been replaced by one with other indexes.
                index = 0;
                tokio::time::sleep(pause.next()).await;
            }
        }
    }
}

/// An index that goes backwards belongs to another state of the servers: start again. Zero would not block.
fn next_index(last: u64, answered: u64) -> u64 {
    if answered < last { 0 } else { answered.max(1) }
}

struct ConsulAnswer {
    index: u64,
    instances: Vec<FoundEndpoint>,
}

async fn ask(
    control: &ControlShared,
    service: &str,
    config: &ConsulConfig,
    index: u64,
) -> Result<ConsulAnswer, String> {
    let token = config.token.as_ref().map(|token| SecretHeader {
        name: "x-consul-token".to_owned(),
        value: token.clone(),
    });
    let path = path(service, config, index);
    // The lock of one request at a time would make the services of an agent wait for each other.
    let response = control.client.send_now(OutboundRequest {
        url: &config.url,
        http: HttpVersion::Http1,
        method: Method::GET,
        path: &path,
        headers: token.as_slice(),
        body: None,
        timeout: WAIT + WAIT / 16 + SLACK,
    });
    let response = response.await.map_err(|error| chain(&error).to_string())?;
    if !response.status.is_success() {
        let status = response.status.as_u16();
        let hint = match status {
            403 => "; check the token of `[consul]`",
            _ => "",
        };
        return Err(format!("`{}` answered {status}{hint}", config.url));
    }
    let instances: Vec<InstanceBody> = serde_json::from_slice(&response.body)
        .map_err(|error| format!("the answer of `{}` is not valid: {error}", config.url))?;
    Ok(ConsulAnswer {
        index: index_of(&response.headers),
        instances: instances.iter().filter_map(InstanceBody::found).collect(),
    })
}

fn path(service: &str, config: &ConsulConfig, index: u64) -> String {
    let mut path = format!("/v1/health/service/{}?passing=1", encode(service));
    if index > 0 {
        path += &format!("&index={index}&wait={}s", WAIT.as_secs());
    }
    if let Some(datacenter) = &config.datacenter {
        path += &format!("&dc={}", encode(datacenter));
    }
    path
}

/// Percent-encodes all but unreserved characters.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            other => encoded += &format!("%{other:02X}"),
        }
    }
    encoded
}

fn index_of(headers: &HeaderMap) -> u64 {
    let index = headers.get("x-consul-index");
    let index = index.and_then(|value| value.to_str().ok()?.parse().ok());
    index.unwrap_or(0)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InstanceBody {
    node: NodeBody,
    service: ServiceBody,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NodeBody {
    #[serde(default)]
    address: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceBody {
    #[serde(default)]
    address: String,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    meta: Option<ServiceMeta>,
}

/// What an instance says about itself. The values are texts; one that is not valid is skipped.
#[derive(Deserialize, Default)]
struct ServiceMeta {
    permits: Option<String>,
    weight: Option<String>,
    kind: Option<String>,
    scheme: Option<String>,
}

impl InstanceBody {
    /// The endpoint; `None` without a port.
    fn found(&self) -> Option<FoundEndpoint> {
        let host = match self.service.address.as_str() {
            "" => &self.node.address,
            address => address,
        };
        if self.service.port == 0 || host.is_empty() {
            return None;
        }
        let default = ServiceMeta::default();
        let meta = self.service.meta.as_ref().unwrap_or(&default);
        let url = BackendUrl {
            scheme: match meta.scheme.as_deref() {
                Some("https") => Scheme::Https,
                _ => Scheme::Http,
            },
            host: host.to_ascii_lowercase(),
            port: self.service.port,
            prefix: String::new(),
            ip: None,
        };
        let weight = meta.weight.as_ref().and_then(|text| text.parse().ok());
        let permits = meta.permits.as_ref().and_then(|text| text.parse().ok());
        Some(FoundEndpoint {
            permits: permits.filter(|permits| *permits > 0),
            weight: weight.filter(|weight: &f64| weight.is_finite() && *weight > 0.0),
            kind: meta.kind.as_deref().and_then(BackendKind::parse),
            ..FoundEndpoint::new(url)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_goes_backwards_starts_again() {
        assert_eq!(next_index(0, 7), 7);
        assert_eq!(next_index(7, 7), 7);
        assert_eq!(next_index(7, 5), 0);
        assert_eq!(next_index(0, 0), 1);
    }

    #[test]
    fn a_query_names_service_index_and_datacenter() {
        let mut config = ConsulConfig::default();
        assert_eq!(
            path("llama", &config, 0),
            "/v1/health/service/llama?passing=1"
        );
        config.datacenter = Some("a b".to_owned());
        assert_eq!(
            path("ll&ama", &config, 3),
            "/v1/health/service/ll%26ama?passing=1&index=3&wait=55s&dc=a%20b"
        );
    }
}
