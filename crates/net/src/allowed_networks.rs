//! The networks that the server may connect to: the public internet, and networks that the operator
//! allows.
//!
//! A client names webhooks and input files, and so makes the server send requests. A private address
//! would let a client reach hosts that only this machine can reach (SSRF).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;
use url::{Host, Url};

use crate::InvalidUrl;

/// The networks that may be reached. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AllowedNetworks(NetworkRules);

#[derive(Debug, Clone)]
enum NetworkRules {
    /// Every address, for URLs that the operator chose.
    All,
    /// Public addresses and these networks.
    PublicAnd(Arc<[IpNet]>),
}

/// An item of the list is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a network; write `10.0.0.0/8`, `192.168.1.20`, `fd00::/8`, or `all`")]
pub struct InvalidNetwork(String);

impl Default for AllowedNetworks {
    fn default() -> Self {
        Self::public()
    }
}

impl AllowedNetworks {
    /// Only public addresses.
    pub fn public() -> Self {
        Self(NetworkRules::PublicAnd(Arc::new([])))
    }

    /// Every address.
    pub fn all() -> Self {
        Self(NetworkRules::All)
    }

    /// Public addresses and those of a list: networks and single addresses, separated by commas, or
    /// `all`.
    pub fn parse(list: &str) -> Result<Self, InvalidNetwork> {
        let items: Vec<&str> = list
            .split([',', ' ', '\n'])
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .collect();
        if items.iter().any(|item| item.eq_ignore_ascii_case("all")) {
            return Ok(Self::all());
        }
        let networks: Result<Vec<IpNet>, _> = items.into_iter().map(network).collect();
        Ok(Self(NetworkRules::PublicAnd(networks?.into())))
    }

    /// Whether this address may be reached.
    pub fn permit(&self, address: IpAddr) -> bool {
        match &self.0 {
            NetworkRules::All => true,
            NetworkRules::PublicAnd(networks) => {
                // `::ffff:10.0.0.1` is the same machine as `10.0.0.1`.
                let address = address.to_canonical();
                is_public(address) || networks.iter().any(|network| network.contains(&address))
            }
        }
    }

    /// Refuses a URL whose host is a private address. Names are checked when they are resolved, except
    /// `localhost`, which is known without a resolver.
    pub(crate) fn check(&self, url: &Url) -> Result<(), InvalidUrl> {
        let allowed = match url.host() {
            None => return Err(InvalidUrl::NoHost),
            Some(Host::Ipv4(address)) => self.permit(address.into()),
            Some(Host::Ipv6(address)) => self.permit(address.into()),
            Some(Host::Domain(name)) => {
                !is_localhost(name)
                    || self.permit(Ipv4Addr::LOCALHOST.into())
                    || self.permit(Ipv6Addr::LOCALHOST.into())
            }
        };
        if allowed {
            Ok(())
        } else {
            Err(InvalidUrl::Private(
                url.host_str().unwrap_or_default().to_owned(),
            ))
        }
    }
}

fn network(item: &str) -> Result<IpNet, InvalidNetwork> {
    let parsed = item
        .parse::<IpNet>()
        .or_else(|_| item.parse::<IpAddr>().map(IpNet::from));
    parsed.map_err(|_| InvalidNetwork(item.to_owned()))
}

fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether the address is globally reachable.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        // This network, private, shared with the provider's other customers, loopback.
        [0 | 10 | 127, ..] | [100, 64..=127, ..] => true,
        // Link-local, where clouds serve the credentials of a machine; private.
        [169, 254, ..] | [172, 16..=31, ..] | [192, 168, ..] => true,
        // Protocol assignments, documentation, 6to4 relays, benchmarks.
        [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => true,
        // Multicast, reserved, broadcast.
        [224..=255, ..] => true,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let embedded = |high: u16, low: u16| {
        is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)))
    };
    match parts {
        // Addresses that embed an IPv4 address: that address decides.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => false,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => embedded(high, low),
        [0x0064, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        [0x2001, 0, server_high, server_low, _, _, high, low] => {
            embedded(server_high, server_low) && embedded(!high, !low)
        }
        // Protocol assignments and documentation.
        [0x2001, 0x0001..=0x01ff | 0x0db8, ..] | [0x3fff, 0x0000..=0x0fff, ..] => false,
        // Global unicast; private, link-local, multicast and unassigned addresses are outside.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(networks: &AllowedNetworks, address: &str) -> bool {
        networks.permit(address.parse().unwrap())
    }

    #[test]
    fn only_public_addresses_are_permitted() {
        let networks = AllowedNetworks::public();
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.255",
        ] {
            assert!(permits(&networks, public), "{public}");
        }
        for public in [
            "2606:4700::1111",
            "2a00::1",
            "::ffff:1.1.1.1",
            "64:ff9b::8.8.8.8",
            "2002:0808:0808::1",
            "2001:0:0808:0808::f7f7:f7f7",
        ] {
            assert!(permits(&networks, public), "{public}");
        }
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            assert!(!permits(&networks, private), "{private}");
        }
        for private in [
            "::",
            "::1",
            "::2",
            "::10.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "2001:db8::1",
            "2001:2::1",
            "2001:20::1",
            "2002:0a00:0001::1",
            "2002:7f00:1::",
            "2001:0:0808:0808::f5ff:fffe",
            "2001:0:0a00:0001::f7f7:f7f7",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!permits(&networks, private), "{private}");
        }
    }

    #[test]
    fn the_operator_allows_single_networks() {
        let networks = AllowedNetworks::parse("127.0.0.0/8, 10.1.2.3 fd00::/8").unwrap();
        for open in [
            "127.0.0.1",
            "::ffff:127.9.9.9",
            "10.1.2.3",
            "fd00::5",
            "1.1.1.1",
        ] {
            assert!(permits(&networks, open), "{open}");
        }
        for closed in ["10.1.2.4", "::1", "192.168.0.1", "fc00::1"] {
            assert!(!permits(&networks, closed), "{closed}");
        }
        assert!(permits(
            &AllowedNetworks::parse("ALL").unwrap(),
            "127.0.0.1"
        ));
        assert!(!permits(&AllowedNetworks::parse("").unwrap(), "127.0.0.1"));
    }

    #[test]
    fn an_invalid_list_names_the_item_and_the_format() {
        for (list, part) in [
            ("10.0.0.0/33", "10.0.0.0/33"),
            ("127.0.0.1,intranet", "intranet"),
            ("10.0.0.0-10.0.0.9", "10.0.0.0-10.0.0.9"),
        ] {
            let error = AllowedNetworks::parse(list).unwrap_err().to_string();
            assert!(
                error.contains(&format!("`{part}`")) && error.contains("10.0.0.0/8"),
                "{error}"
            );
        }
    }
}
