//! The endpoints of a model.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::checker::FleetChecker;
use super::model::ModelContext;
use crate::fleet::backend_flag::kind_fix;
use crate::fleet::file::{EndpointFile, Key};
use crate::fleet::file_values::FileSecret;
use crate::fleet::{BackendKind, BackendUrl, Discovery, EndpointConfig, HttpVersion, SecretHeader};

/// The default of `cancel_grace`.
const CANCEL_GRACE: Duration = Duration::from_secs(10);
/// The default of `detach_timeout`.
const DETACH_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Headers that belong to a connection or to a message and not to the backend.
const RESERVED_HEADERS: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

pub(super) fn endpoint(
    checker: &mut FleetChecker<'_>,
    context: &mut ModelContext<'_>,
    file: &Spanned<EndpointFile>,
) -> Option<EndpointConfig> {
    let table = file.span();
    let file = file.get_ref();
    let address = address(checker, &table, file);
    let kind = kind(checker, &file.kind);
    let endpoint = EndpointConfig {
        upstream_model: non_empty(checker, "upstream_model", &file.upstream_model),
        permits: file
            .permits
            .is_some()
            .then(|| checker.whole("permits", &file.permits, 1..=100_000, 1)),
        site: context.site_of(checker, &file.site),
        weight: checker
            .decimal(
                "weight",
                &file.weight,
                |weight| weight > 0.0,
                "write a number above 0; remove the endpoint to send it nothing",
            )
            .unwrap_or(1.0),
        http: http(checker, file),
        headers: headers(checker, file),
        probe_path: path(checker, "probe_path", &file.probe_path),
        loopback: path(checker, "loopback", &file.loopback),
        detach_timeout: checker.duration("detach_timeout", &file.detach_timeout, DETACH_TIMEOUT),
        cancel_grace: checker.delay("cancel_grace", &file.cancel_grace, CANCEL_GRACE),
        ..EndpointConfig::new(address?, kind)
    };
    if let Some(permits) = &file.permits {
        context.check_permits(checker, &endpoint, permits);
    }
    Some(endpoint)
}

/// The one address or source of addresses.
fn address(
    checker: &mut FleetChecker<'_>,
    table: &Range<usize>,
    file: &EndpointFile,
) -> Option<Discovery> {
    let join = file.join.as_ref().filter(|join| *join.get_ref());
    let given: Vec<(&str, Range<usize>)> = [
        ("url", file.url.as_ref().map(Spanned::span)),
        ("dns", file.dns.as_ref().map(Spanned::span)),
        ("srv", file.srv.as_ref().map(Spanned::span)),
        ("consul", file.consul.as_ref().map(Spanned::span)),
        ("join", join.map(Spanned::span)),
    ]
    .into_iter()
    .filter_map(|(key, span)| Some((key, span?)))
    .collect();
    match given.as_slice() {
        [] => {
            checker.problem(
                table.clone(),
                "the endpoint has no address",
                "add one of `url = \"http://HOST:PORT\"`, `dns`, `srv`, `consul` or `join = true`",
            );
            return None;
        }
        [_] => {}
        [(first, _), (second, span), ..] => {
            checker.problem(
                span.clone(),
                format!("the endpoint has `{first}` and `{second}`"),
                "keep one of them; write a second `[[model.endpoint]]` for the other",
            );
            return None;
        }
    }
    if let Some(url) = &file.url {
        return backend_url(checker, url).map(Discovery::Url);
    }
    if let Some(dns) = &file.dns {
        return host_and_port(checker, dns).map(Discovery::Dns);
    }
    if let Some(srv) = &file.srv {
        return srv_name(checker, srv).map(Discovery::Srv);
    }
    if let Some(service) = &file.consul {
        let name = service.get_ref();
        let is_valid = !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && c != '/');
        if !is_valid {
            checker.problem(
                service.span(),
                format!("`{name}` is not the name of a service of Consul"),
                "write the name under which the service is registered",
            );
            return None;
        }
        return Some(Discovery::Consul(name.clone()));
    }
    Some(Discovery::Join)
}

pub(super) fn backend_url(
    checker: &mut FleetChecker<'_>,
    url: &Spanned<String>,
) -> Option<BackendUrl> {
    match BackendUrl::parse(url.get_ref()) {
        Ok(url) => Some(url),
        Err(error) => {
            // A URL with a user has a password too.
            let problem = match error.text.contains('@') {
                true => format!("this is not the URL of a backend: {}", error.reason),
                false => {
                    let (text, reason) = (error.text, error.reason);
                    format!("`{text}` is not the URL of a backend: {reason}")
                }
            };
            checker.problem(
                url.span(),
                problem,
                "write for instance `http://10.0.0.5:8000`",
            );
            None
        }
    }
}

/// `[https://]HOST:PORT`
pub(super) fn host_and_port(
    checker: &mut FleetChecker<'_>,
    text: &Spanned<String>,
) -> Option<String> {
    let is_valid = without_scheme(text.get_ref())
        .rsplit_once(':')
        .is_some_and(|(host, port)| is_name(host) && port.parse::<u16>().is_ok_and(|p| p > 0));
    if !is_valid {
        checker.problem(
            text.span(),
            format!("`{}` is not a host name with a port", text.get_ref()),
            "write for instance `llama.svc:8000`",
        );
        return None;
    }
    Some(text.get_ref().clone())
}

fn srv_name(checker: &mut FleetChecker<'_>, text: &Spanned<String>) -> Option<String> {
    if !is_name(without_scheme(text.get_ref())) {
        checker.problem(
            text.span(),
            format!("`{}` is not the name of an SRV record", text.get_ref()),
            "write for instance `_http._tcp.llama.example`; the port comes from the record",
        );
        return None;
    }
    Some(text.get_ref().clone())
}

/// Backends that are found by name speak HTTP, unless the name begins with `https://`.
fn without_scheme(text: &str) -> &str {
    let plain = text.strip_prefix("http://");
    plain
        .or_else(|| text.strip_prefix("https://"))
        .unwrap_or(text)
}

/// Whether the text can be a name in DNS.
fn is_name(text: &str) -> bool {
    let labels = || text.strip_suffix('.').unwrap_or(text).split('.');
    text.len() <= 253
        && labels().all(|label| (1..=63).contains(&label.len()))
        && labels().all(|label| {
            label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
        })
}

fn kind(checker: &mut FleetChecker<'_>, kind: &Key<String>) -> BackendKind {
    let Some(name) = kind else {
        return BackendKind::OpenAi;
    };
    BackendKind::parse(name.get_ref()).unwrap_or_else(|| {
        checker.problem(
            name.span(),
            format!("there is no kind `{}`", name.get_ref()),
            kind_fix(name.get_ref()),
        );
        BackendKind::OpenAi
    })
}

fn http(checker: &mut FleetChecker<'_>, file: &EndpointFile) -> HttpVersion {
    match checker.whole("http", &file.http, 1..=2, 1) {
        2 => HttpVersion::Http2,
        _ => HttpVersion::Http1,
    }
}

fn headers(checker: &mut FleetChecker<'_>, file: &EndpointFile) -> Vec<SecretHeader> {
    let headers = file.headers.iter().filter_map(|(name, value)| {
        let lower = name.get_ref().to_ascii_lowercase();
        let is_token = !lower.is_empty()
            && lower
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
        if !is_token {
            checker.problem(
                name.span(),
                format!("`{}` is not the name of a header", name.get_ref()),
                "use letters, digits and `-`",
            );
            return None;
        }
        if RESERVED_HEADERS.contains(&lower.as_str()) {
            checker.problem(
                name.span(),
                format!("the header `{lower}` cannot be set"),
                "remove it; the router sets it for each request",
            );
            return None;
        }
        secret_header(checker, lower, value)
    });
    headers.collect()
}

/// A credential without a scheme is a bearer token: files usually contain only the key.
fn secret_header(
    checker: &mut FleetChecker<'_>,
    name: String,
    value: &Spanned<FileSecret>,
) -> Option<SecretHeader> {
    let value = checker.secret(&name, value)?;
    let value = if name == "authorization" && !value.contains(' ') {
        format!("Bearer {value}")
    } else {
        value
    };
    Some(SecretHeader { name, value })
}

/// A path of the backend.
fn path(checker: &mut FleetChecker<'_>, key: &str, value: &Key<String>) -> Option<String> {
    let value = value.as_ref()?;
    let text = value.get_ref();
    if !text.starts_with('/') || text.contains(|c: char| !c.is_ascii_graphic()) {
        checker.problem(
            value.span(),
            format!("`{text}` is not valid for `{key}`"),
            "write a path that begins with `/`",
        );
        return None;
    }
    Some(text.clone())
}

fn non_empty(checker: &mut FleetChecker<'_>, key: &str, value: &Key<String>) -> Option<String> {
    let value = value.as_ref()?;
    if value.get_ref().trim().is_empty() {
        checker.problem(
            value.span(),
            format!("`{key}` is empty"),
            "remove the key, or give a value",
        );
        return None;
    }
    Some(value.get_ref().clone())
}
