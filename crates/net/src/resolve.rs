//! From a name to the addresses that may be called.
//!
//! The connection goes to what is returned here and is not resolved again, so a name that answers
//! differently the second time gains nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::{AllowedNetworks, InvalidUrl};

/// Asks somebody where a name leads.
pub(crate) type Lookup =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// The system's own resolver.
pub(crate) fn system() -> Lookup {
    Arc::new(|name| {
        async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) }.boxed()
    })
}

/// A resolver that gives only addresses that may be called.
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
            // One private address among public ones is enough: it is somebody's trick or mistake.
            if let Some(private) = found.iter().find(|address| !networks.permit(address.ip())) {
                tracing::warn!(host = name, address = %private.ip(), "not called: the name leads to an address that is not public");
                return Err(InvalidUrl::Private(name).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
