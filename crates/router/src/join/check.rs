//! What a registration must satisfy.

use std::net::IpAddr;
use std::time::Duration;

use ring::digest;

use crate::fleet::{BackendUrl, Discovery, Fleet, InvalidBackendUrl, JoinKey};

/// The duration of a registration that does not say one.
const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// The shortest duration of a registration.
const MIN_TTL: Duration = Duration::from_secs(1);

/// A registration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    /// No key, or none that the router knows. The message does not say which.
    #[error("the join key is missing or not known; send it as `Authorization: Bearer KEY`")]
    Unauthorized,
    /// The key is not for this model.
    #[error("the join key does not allow the model `{model}`")]
    ModelNotAllowed {
        /// The name.
        model: String,
    },
    /// An address outside the networks of the key.
    #[error("the address {address} of {of} is not in the networks of the join key")]
    NetworkNotAllowed {
        /// The address.
        address: IpAddr,
        /// Whose it is.
        of: &'static str,
    },
    /// The router does not have the model, or backends cannot join it.
    #[error(
        "backends cannot join the model `{model}`; add an endpoint with `join = true` to it in the configuration of the router"
    )]
    NotJoinable {
        /// The name.
        model: String,
    },
    /// No model is named.
    #[error("the registration names no model; give at least one in `models`")]
    NoModel,
    /// The URL is not valid.
    #[error(transparent)]
    InvalidUrl(#[from] InvalidBackendUrl),
    /// The host of the URL has no address.
    #[error("{reason}; use an address that the router can reach")]
    UnknownHost {
        /// The name and the cause.
        reason: String,
    },
    /// There is no such kind.
    #[error("there is no kind `{kind}`; the kinds are {known}")]
    InvalidKind {
        /// What was written.
        kind: String,
        /// All kinds.
        known: String,
    },
    /// The router has as many registrations as it accepts.
    #[error("the router accepts no more than {limit} registrations")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}

impl JoinRefusal {
    /// The status of the response.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::ModelNotAllowed { .. } | Self::NetworkNotAllowed { .. } => 403,
            Self::NotJoinable { .. } => 404,
            Self::NoModel
            | Self::InvalidUrl(_)
            | Self::UnknownHost { .. }
            | Self::InvalidKind { .. } => 400,
            Self::TooMany { .. } => 429,
        }
    }
}

/// The key with this value. Keys are found by their hash, so that the time tells nothing about them.
pub(super) fn check_key<'a>(
    fleet: &'a Fleet,
    key: Option<&str>,
) -> Result<&'a JoinKey, JoinRefusal> {
    let hash = hash(key.ok_or(JoinRefusal::Unauthorized)?);
    let known = fleet.join_keys.iter().find(|key| key.key_hash == hash);
    known.ok_or(JoinRefusal::Unauthorized)
}

fn hash(key: &str) -> String {
    let hash = digest::digest(&digest::SHA256, key.as_bytes());
    hash.as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The names of the models that are meant by names or aliases.
pub(super) fn check_models(
    fleet: &Fleet,
    key: &JoinKey,
    names: &[String],
) -> Result<Vec<String>, JoinRefusal> {
    if names.is_empty() {
        return Err(JoinRefusal::NoModel);
    }
    let models = names.iter().map(|name| {
        let model = fleet.model(name);
        let is_allowed = allows(key, model.map_or(name, |model| &model.name));
        if !is_allowed {
            return Err(JoinRefusal::ModelNotAllowed {
                model: name.clone(),
            });
        }
        let joinable = model.filter(|model| {
            let mut endpoints = model.endpoints.iter();
            endpoints.any(|endpoint| endpoint.address == Discovery::Join)
        });
        match joinable {
            Some(model) => Ok(model.name.clone()),
            None => Err(JoinRefusal::NotJoinable {
                model: name.clone(),
            }),
        }
    });
    models.collect()
}

/// Whether a key is for the model with this name.
pub(super) fn allows(key: &JoinKey, model: &str) -> bool {
    let mut allowed = key.models.iter();
    allowed.any(|allowed| allowed == "*" || allowed == model)
}

pub(super) fn check_network(
    key: &JoinKey,
    address: IpAddr,
    of: &'static str,
) -> Result<(), JoinRefusal> {
    let canonical = address.to_canonical();
    match key
        .networks
        .iter()
        .any(|network| network.contains(&canonical))
    {
        true => Ok(()),
        false => Err(JoinRefusal::NetworkNotAllowed { address, of }),
    }
}

/// The URL; an unspecified address stands for the one of the peer.
pub(super) fn requested_url(text: &str, peer: IpAddr) -> Result<BackendUrl, JoinRefusal> {
    let mut url = BackendUrl::parse(text)?;
    if url
        .host
        .parse()
        .is_ok_and(|host: IpAddr| host.is_unspecified())
    {
        url.host = peer.to_canonical().to_string();
    }
    Ok(url)
}

/// The duration of a registration.
pub(super) fn ttl(requested: Option<f64>, max: Duration) -> Duration {
    let requested = requested.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(max));
    requested.unwrap_or(DEFAULT_TTL).max(MIN_TTL).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_duration_is_between_a_second_and_the_maximum() {
        let max = Duration::from_secs(60);
        assert_eq!(ttl(None, max), DEFAULT_TTL);
        assert_eq!(ttl(Some(10.0), max), Duration::from_secs(10));
        assert_eq!(ttl(Some(0.001), max), MIN_TTL);
        assert_eq!(ttl(Some(1e300), max), max);
        assert_eq!(ttl(Some(-1.0), max), max);
        assert_eq!(
            ttl(None, Duration::from_millis(500)),
            Duration::from_millis(500)
        );
    }

    #[test]
    fn an_unspecified_host_is_the_peer() {
        let peer: IpAddr = "::ffff:10.0.0.7".parse().unwrap();
        let of = |text| requested_url(text, peer).unwrap().to_string();
        assert_eq!(of("http://0.0.0.0:5000"), "http://10.0.0.7:5000");
        assert_eq!(of("http://[::]:5000"), "http://10.0.0.7:5000");
        assert_eq!(of("http://10.0.0.9:5000"), "http://10.0.0.9:5000");
    }
}
