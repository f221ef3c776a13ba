//! The parts of the file that concern all models: sites, limits, discovery, probes, events.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use toml::Spanned;

use super::checker::FleetChecker;
use super::endpoint::{backend_url, host_and_port};
use crate::fleet::file::{ConsulFile, DnsFile, EventsFile, LimitsFile, ProbeFile, SiteFile};
use crate::fleet::file_values::FileSecret;
use crate::fleet::{
    ConsulConfig, DnsConfig, FleetLimits, ProbeConfig, SITE_KEY_HEADER, SecretHeader, SiteConfig,
};

/// The port of name servers.
const DNS_PORT: u16 = 53;
/// The length of the name of a site.
const MAX_SITE_LEN: usize = 64;

pub(super) fn own_site(checker: &mut FleetChecker<'_>, site: Option<&Spanned<String>>) -> String {
    match site {
        Some(site) if site.get_ref().is_empty() => String::new(),
        Some(site) => site_name(checker, site).unwrap_or_default(),
        None => String::new(),
    }
}

/// The name of a site, which appears in headers and metrics.
fn site_name(checker: &mut FleetChecker<'_>, name: &Spanned<String>) -> Option<String> {
    let text = name.get_ref();
    let is_valid = (1..=MAX_SITE_LEN).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if !is_valid {
        checker.problem(
            name.span(),
            format!("`{text}` is not the name of a site"),
            format!("use 1 to {MAX_SITE_LEN} letters, digits, `_`, `.` and `-`"),
        );
        return None;
    }
    Some(text.clone())
}

pub(super) fn remote_sites(
    checker: &mut FleetChecker<'_>,
    own_site: &str,
    files: &[Spanned<SiteFile>],
) -> Vec<SiteConfig> {
    let mut seen = HashMap::new();
    let sites = files.iter().filter_map(|file| {
        let table = file.span();
        let file = file.get_ref();
        let name = checker.required(
            &table,
            "the site has no name",
            &file.name,
            "add `name = \"…\"`",
        );
        if let Some(name) = name {
            checker.unique(&mut seen, "sites", name);
            if name.get_ref() == own_site {
                checker.problem(
                    name.span(),
                    format!("`{own_site}` is the site of this router"),
                    "list only other sites; the endpoints of this site belong to its models",
                );
            }
        }
        let name = name.and_then(|name| site_name(checker, name));
        let site = site(checker, file);
        Some(SiteConfig {
            name: name?,
            ..site
        })
    });
    sites.collect()
}

fn site(checker: &mut FleetChecker<'_>, file: &SiteFile) -> SiteConfig {
    let urls: Vec<_> = file
        .urls
        .iter()
        .filter_map(|url| backend_url(checker, url))
        .collect();
    if let Some(dns) = &file.dns {
        host_and_port(checker, dns);
        if !file.urls.is_empty() {
            checker.problem(
                dns.span(),
                "the site has `urls` and `dns`",
                "keep one of the two",
            );
        }
    }
    let key = match (&file.key, &file.key_file) {
        (Some(_), Some(path)) => {
            checker.problem(
                path.span(),
                "the site has `key` and `key_file`",
                "keep one of the two",
            );
            None
        }
        (Some(key), None) => checker.secret("key", key),
        (None, Some(path)) => {
            let secret = Spanned::new(path.span(), FileSecret::File(path.clone()));
            checker.secret("key_file", &secret)
        }
        (None, None) => None,
    };
    SiteConfig {
        name: String::new(),
        urls,
        dns: file.dns.as_ref().map(|dns| dns.get_ref().clone()),
        step: checker.whole("step", &file.step, 0..=1000, 0),
        flow: file.flow.as_ref().map(|flow| flow.get_ref().clone()),
        key: key.map(|value| SecretHeader {
            name: SITE_KEY_HEADER.to_owned(),
            value,
        }),
    }
}

pub(super) fn limits(checker: &mut FleetChecker<'_>, file: &LimitsFile) -> FleetLimits {
    let default = FleetLimits::default();
    FleetLimits {
        buffer: checker.size("buffer", &file.buffer, default.buffer),
        waiting_memory: checker.size(
            "waiting_memory",
            &file.waiting_memory,
            default.waiting_memory,
        ),
    }
}

pub(super) fn dns(checker: &mut FleetChecker<'_>, file: &DnsFile) -> DnsConfig {
    let servers = file.servers.iter().filter_map(|server| {
        let text = server.get_ref();
        let address = text.parse::<SocketAddr>().ok().or_else(|| {
            let address = text.parse::<IpAddr>().ok()?;
            Some(SocketAddr::new(address, DNS_PORT))
        });
        if address.is_none() {
            checker.problem(
                server.span(),
                format!("`{text}` is not the address of a name server"),
                "write an IP address with an optional port, such as `127.0.0.1:8600`",
            );
        }
        address
    });
    DnsConfig {
        servers: servers.collect(),
        interval: checker.duration("interval", &file.interval, DnsConfig::default().interval),
    }
}

pub(super) fn consul(checker: &mut FleetChecker<'_>, file: &ConsulFile) -> ConsulConfig {
    let default = ConsulConfig::default();
    let url = file.url.as_ref().and_then(|url| backend_url(checker, url));
    ConsulConfig {
        url: url.unwrap_or(default.url),
        token: file
            .token
            .as_ref()
            .and_then(|token| checker.secret("token", token)),
        datacenter: file.datacenter.as_ref().map(|name| name.get_ref().clone()),
    }
}

pub(super) fn probe(checker: &mut FleetChecker<'_>, file: &ProbeFile) -> ProbeConfig {
    let default = ProbeConfig::default();
    ProbeConfig {
        interval: checker.duration("interval", &file.interval, default.interval),
        timeout: checker.duration("timeout", &file.timeout, default.timeout),
    }
}

pub(super) fn events_socket(checker: &mut FleetChecker<'_>, file: &EventsFile) -> Option<PathBuf> {
    let socket = file.socket.as_ref()?;
    if socket.get_ref().is_empty() {
        checker.problem(
            socket.span(),
            "`socket` is empty",
            "give the path of a Unix socket, or remove the key",
        );
    }
    Some(checker.path(socket.get_ref()))
}
