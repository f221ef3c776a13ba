//! Resolves host names to allowed addresses.
//!
//! The connection goes to the addresses returned here and the name is not resolved again, so a name that
//! resolves differently the second time (DNS rebinding) has no effect.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::{AllowedNetworks, InvalidUrl};

/// Resolves a host name.
pub(crate) type Lookup =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// The system's own resolver.
pub(crate) fn system() -> Lookup {
    Arc::new(|name| {
        async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) }.boxed()
    })
}

/// A resolver that refuses names with a private address.
pub(crate) struct GuardedResolver {
    pub(crate) networks: AllowedNetworks,
    pub(crate) lookup: Lookup,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let (networks, found) = (self.networks.clone(), (self.lookup)(name.clone()));
        Box::pin(async move {
            let found = found.await?;
            // One private address among public ones is enough: it is an attack or a mistake.
            if let Some(private) = found.iter().find(|address| !networks.permit(address.ip())) {
                tracing::warn!(host = name, address = %private.ip(), "refused request: host resolves to a private address");
                return Err(InvalidUrl::Private(name).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
