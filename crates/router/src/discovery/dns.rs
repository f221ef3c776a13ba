//! The addresses of a host name, and the targets of SRV records.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::random;
use tidegate_net::dns::{DnsError, NameResolver, ServiceRecord};

use super::{DiscoverySource, FoundEndpoint};
use crate::control::ControlShared;
use crate::fleet::{BackendUrl, DnsConfig};

/// What is asked.
#[derive(Clone, Copy)]
pub(super) enum DnsQuestion<'a> {
    /// The addresses of `[SCHEME://]HOST:PORT`.
    Addresses(&'a str),
    /// The SRV records of `[SCHEME://]NAME`.
    Services(&'a str),
}

/// Reports the endpoints at each interval. An answer without records keeps the last list: name servers
/// that lose their zone answer so, and an endpoint that is really gone fails its probes.
pub(super) async fn run(
    control: &Arc<ControlShared>,
    source: &DiscoverySource,
    question: DnsQuestion<'_>,
    config: &DnsConfig,
) {
    let resolver = match NameResolver::new(&config.servers) {
        Ok(resolver) => resolver,
        Err(error) => return control.source_failed(source, error.to_string()),
    };
    loop {
        match ask(&resolver, question).await {
            Ok(found) => control.source_found(source, found),
            Err(error) => control.source_failed(source, error.to_string()),
        }
        tokio::time::sleep(with_jitter(config.interval)).await;
    }
}

/// Up to a tenth less, so that sources do not ask in step.
fn with_jitter(interval: Duration) -> Duration {
    interval.mul_f64(1.0 - 0.1 * random::fraction())
}

async fn ask(
    resolver: &NameResolver,
    question: DnsQuestion<'_>,
) -> Result<Vec<FoundEndpoint>, DnsError> {
    let (scheme, name) = match question {
        DnsQuestion::Addresses(text) | DnsQuestion::Services(text) => split_scheme(text),
    };
    let url = |host: &str, port: u16| {
        let text = format!("{scheme}://{}:{port}", host.trim_end_matches('.'));
        BackendUrl::parse(&text).map_err(|error| DnsError::new(name, error.to_string()))
    };
    match question {
        DnsQuestion::Addresses(_) => {
            let (host, port) = name.rsplit_once(':').unwrap_or((name, "80"));
            let url = url(host, port.parse().unwrap_or(80))?;
            let mut addresses = resolver.addresses(host).await?;
            addresses.sort();
            let found = addresses.into_iter().map(|ip| url.clone().at(ip));
            Ok(found.map(FoundEndpoint::new).collect())
        }
        DnsQuestion::Services(_) => {
            let records = lowest_priority(resolver.services(name).await?);
            let mean = mean_weight(&records);
            let mut found = Vec::new();
            for record in &records {
                let url = url(&record.target, record.port)?;
                // A target without addresses does not take the others out.
                let mut addresses = resolver.addresses(&record.target).await.unwrap_or_default();
                addresses.sort();
                found.extend(addresses.into_iter().map(|ip| FoundEndpoint {
                    weight: Some(weight(record) / mean),
                    ..FoundEndpoint::new(url.clone().at(ip))
                }));
            }
            if found.is_empty() {
                return Err(DnsError::new(name, "no target has an address".to_owned()));
            }
            Ok(found)
        }
    }
}

fn split_scheme(text: &str) -> (&str, &str) {
    text.split_once("://").unwrap_or(("http", text))
}

/// Only the targets with the lowest number are meant to be used while they exist.
fn lowest_priority(mut records: Vec<ServiceRecord>) -> Vec<ServiceRecord> {
    let lowest = records.iter().map(|record| record.priority).min();
    records.retain(|record| Some(record.priority) == lowest);
    records.sort_by(|a, b| (&a.target, a.port).cmp(&(&b.target, b.port)));
    records
}

fn weight(record: &ServiceRecord) -> f64 {
    f64::from(record.weight.max(1))
}

/// The weights of SRV records are relative to each other, those of endpoints to 1.
fn mean_weight(records: &[ServiceRecord]) -> f64 {
    let sum: f64 = records.iter().map(weight).sum();
    sum / records.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(priority: u16, weight: u16, target: &str) -> ServiceRecord {
        ServiceRecord {
            priority,
            weight,
            port: 80,
            target: target.to_owned(),
        }
    }

    #[test]
    fn weights_are_relative_to_the_mean_of_the_lowest_priority() {
        let records = vec![
            record(2, 1, "backup"),
            record(1, 30, "b"),
            record(1, 10, "a"),
        ];
        let records = lowest_priority(records);
        let mean = mean_weight(&records);
        let weights: Vec<_> = records
            .iter()
            .map(|record| (record.target.as_str(), weight(record) / mean))
            .collect();
        assert_eq!(weights, [("a", 0.5), ("b", 1.5)]);
    }

    #[test]
    fn a_weight_of_zero_counts_as_one() {
        assert_eq!(weight(&record(1, 0, "a")), 1.0);
        assert_eq!(mean_weight(&[record(1, 0, "a"), record(1, 0, "b")]), 1.0);
    }

    #[test]
    fn a_name_may_have_a_scheme() {
        assert_eq!(split_scheme("llama.svc:80"), ("http", "llama.svc:80"));
        assert_eq!(
            split_scheme("https://llama.svc:443"),
            ("https", "llama.svc:443")
        );
    }
}
