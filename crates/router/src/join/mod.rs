//! Backends that register themselves, for a limited time.
//!
//! A registration needs a key that is bound to models and networks. It is removed when its time is over,
//! when the backend removes it, and when a reload removes its key.

mod check;
mod registry;
mod wire;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_net::dns::NameResolver;
use tokio::time::Instant;

pub use check::JoinRefusal;
pub(crate) use registry::Registrations;
pub use wire::{JoinRequest, JoinResponse, LeaveRequest};

use crate::control::{ControlShared, FleetControl};
use crate::fleet::BackendUrl;
use check::{check_key, check_models, check_network, requested_url};
use registry::Registration;

/// The longest sleep of the task that removes registrations.
const MAX_SLEEP: Duration = Duration::from_secs(60);

impl FleetControl {
    /// Registers a backend, or renews its registration. `key` is the bearer token of the request and
    /// `peer` the address that it came from.
    pub async fn join(
        &self,
        request: &JoinRequest,
        key: Option<&str>,
        peer: IpAddr,
    ) -> Result<JoinResponse, JoinRefusal> {
        let fleet = self.shared().fleet();
        let key = check_key(&fleet, key)?;
        check_network(key, peer, "this client")?;
        let models = check_models(&fleet, key, &request.models)?;
        let url = self.resolved(requested_url(&request.url, peer)?).await?;
        let ip = url.ip.or_else(|| url.host.parse().ok());
        if let Some(ip) = ip {
            check_network(key, ip, "the backend")?;
        }
        let ttl = check::ttl(request.ttl_s, key.max_ttl);
        let registration = Registration {
            key_hash: key.key_hash.clone(),
            models: models.clone(),
            kind: request.parsed_kind()?,
            permits: request.permits.filter(|permits| *permits > 0),
            expires: Instant::now() + ttl,
            url: url.clone(),
        };
        let name = key.name.clone();
        let is_new = self
            .shared()
            .update(|state| state.registrations.put(registration))?;
        if is_new {
            tracing::info!(backend = %url, ?models, join_key = %name, "a backend joined");
        }
        self.shared().registrations_changed.notify_one();
        Ok(JoinResponse {
            url: url.to_string(),
            models,
            ttl_s: ttl.as_secs_f64(),
        })
    }

    /// Removes a registration before its time is over. Requests that run there end normally. `Ok(false)` if
    /// there was none.
    pub async fn leave(
        &self,
        request: &LeaveRequest,
        key: Option<&str>,
        peer: IpAddr,
    ) -> Result<bool, JoinRefusal> {
        let fleet = self.shared().fleet();
        let key = check_key(&fleet, key)?;
        check_network(key, peer, "this client")?;
        let url = self.resolved(requested_url(&request.url, peer)?).await?;
        let removed = self
            .shared()
            .update(|state| state.registrations.remove(&url, &key.key_hash));
        if removed {
            tracing::info!(backend = %url, join_key = %key.name, "a backend left");
        }
        Ok(removed)
    }

    /// The URL with the address of its host. It is resolved here, once, so that the network that was
    /// checked is the one that requests go to.
    async fn resolved(&self, url: BackendUrl) -> Result<BackendUrl, JoinRefusal> {
        if url.host.parse::<IpAddr>().is_ok() {
            return Ok(url);
        }
        let failed = |error: tidegate_net::dns::DnsError| JoinRefusal::UnknownHost {
            reason: error.to_string(),
        };
        let servers = self.shared().fleet().dns.servers.clone();
        let resolver = NameResolver::new(&servers).map_err(failed)?;
        let addresses = resolver.addresses(&url.host).await.map_err(failed)?;
        Ok(match addresses.first() {
            Some(ip) => url.at(*ip),
            None => url,
        })
    }
}

/// Removes registrations whose time is over, until the control plane stops.
pub(crate) async fn expire(control: Arc<ControlShared>) {
    let stop = control.stop.clone();
    loop {
        let now = Instant::now();
        let next = control.update(|state| {
            for url in state.registrations.expire(now) {
                tracing::warn!(backend = %url, "a backend has not renewed its registration");
            }
            state.registrations.next_expiry()
        });
        let wake = next.unwrap_or(now + MAX_SLEEP);
        tokio::select! {
            () = stop.cancelled() => return,
            () = control.registrations_changed.notified() => {}
            () = tokio::time::sleep_until(wake) => {}
        }
    }
}
