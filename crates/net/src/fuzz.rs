//! Fuzz targets: see `docs/fuzzing.md`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tidegate_fuzzing::pieces;
use url::{Host, Url};

use crate::{AllowedNetworks, SseEvent, SseParser, parse_url};

/// The events of a stream are those of a simple parser of the whole stream, however it is divided. The
/// first byte selects the division.
pub fn sse_parser(input: &[u8]) {
    let Some((seed, stream)) = input.split_first() else {
        return;
    };
    let mut events = Vec::new();
    let mut add = |event: SseEvent<'_>| events.push((event.name.to_vec(), event.data.to_vec()));
    let mut parser = SseParser::new(stream.len());
    for piece in pieces(*seed, stream) {
        parser
            .push(piece, &mut add)
            .expect("an event is not larger than its stream");
    }
    parser
        .finish(&mut add)
        .expect("an event is not larger than its stream");
    assert_eq!(events, simple_events(stream));
}

/// The events of a whole stream: lines, fields, empty lines.
fn simple_events(stream: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    // One character for each byte, so that the methods of texts can be used.
    let text: String = stream.iter().map(|byte| char::from(*byte)).collect();
    let text = text.strip_prefix("\u{EF}\u{BB}\u{BF}").unwrap_or(&text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n") + "\n\n";
    let bytes = |text: &str| text.chars().map(|c| c as u8).collect::<Vec<u8>>();
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), None::<String>);
    for line in text.split('\n') {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut name),
            "data" => data = Some(data.map_or(value.to_owned(), |data| data + "\n" + value)),
            "" if line.is_empty() => {
                events.extend(data.take().map(|data| (bytes(&name), bytes(&data))));
                name.clear();
            }
            _ => {}
        }
    }
    events
}

/// However a URL is written: if it is allowed, its host is not a private address, and an error message
/// does not contain its password.
pub fn address(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let networks = AllowedNetworks::public();
    for text in [&*text, &format!("http://{text}/x")] {
        match parse_url(text, &networks) {
            Ok(url) => {
                assert!(matches!(url.scheme(), "http" | "https"), "{url}");
                let is_public = match url.host() {
                    None => false,
                    Some(Host::Ipv4(address)) => !is_special_v4(address),
                    Some(Host::Ipv6(address)) => !is_special_v6(address),
                    Some(Host::Domain(name)) => {
                        name.split('.').rfind(|part| !part.is_empty()) != Some("localhost")
                    }
                };
                assert!(is_public, "{url} is allowed");
                assert_eq!(
                    parse_url(url.as_str(), &networks).as_ref(),
                    Ok(&url),
                    "it parses differently the second time"
                );
            }
            Err(error) => {
                let message = error.to_string();
                let password = Url::parse(text)
                    .ok()
                    .and_then(|url| url.password().map(str::to_owned));
                // A short password may occur in any text.
                assert!(
                    !password
                        .is_some_and(|password| password.len() > 8 && message.contains(&password)),
                    "{message}"
                );
            }
        }
    }
    network_list(&text);
}

/// A list of networks allows no address that it does not name.
fn network_list(text: &str) {
    match AllowedNetworks::parse(text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(networks) => {
            let wide = text.to_ascii_lowercase().contains("all") || text.contains('/');
            let named = text.contains("169.254") || text.contains(':');
            assert!(
                wide || named || !networks.permit(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254))),
                "{text:?} allows too much"
            );
        }
    }
}

/// The standard library's definition, which is independent of ours.
fn is_special_v4(address: Ipv4Addr) -> bool {
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
}

fn is_special_v6(address: Ipv6Addr) -> bool {
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || address.to_ipv4().is_some_and(is_special_v4)
}

#[cfg(test)]
mod tests {
    use tidegate_fuzzing::short_run;

    #[test]
    fn addresses_hold_for_generated_inputs() {
        short_run("address", super::address);
    }

    #[test]
    fn event_streams_hold_for_generated_inputs() {
        short_run("sse_parser", super::sse_parser);
    }
}
