//! Where the server listens, and whether it may listen there.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tidegate_http::access::Tokens;
use tokio::net::TcpListener;

use crate::cli::ListenArgs;
use crate::usage_error::UsageError;

/// Listens where the command line says.
pub(crate) async fn listen(
    door: &ListenArgs,
    tokens: Option<&Tokens>,
) -> Result<TcpListener, UsageError> {
    let ListenArgs { host, port, .. } = door;
    let callers = match tokens {
        Some(_) => AccessPolicy::Tokens,
        None if door.allow_anonymous => AccessPolicy::AnonymousAllowed,
        None => AccessPolicy::AnonymousByDefault,
    };
    let addresses = addresses(host, *port, callers).await?;
    TcpListener::bind(addresses.as_slice()).await.map_err(|error| {
        let usage = UsageError::new(format!("cannot listen on {host}:{port}: {error}"));
        match error.kind() {
            ErrorKind::AddrInUse => usage.hint("another program has this port; choose one with --port, or --port 0 for any free one"),
            _ => usage.hint("check --host and --port"),
        }
    })
}

/// Whether everybody who reaches the port may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessPolicy {
    /// Those with a token.
    Tokens,
    /// Everybody, and somebody has said that this is meant.
    AnonymousAllowed,
    /// Everybody, because nothing was said.
    AnonymousByDefault,
}

/// The addresses that a host names. Other machines are not let in by accident.
async fn addresses(
    host: &str,
    port: u16,
    callers: AccessPolicy,
) -> Result<Vec<SocketAddr>, UsageError> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<_> = found
        .map_err(|error| {
            UsageError::new(format!("--host `{host}` is not an address: {error}"))
                .hint("check --host")
        })?
        .collect();
    let public = found
        .iter()
        .any(|address| !address.ip().to_canonical().is_loopback());
    if public && callers == AccessPolicy::AnonymousByDefault {
        let what = format!(
            "--host {host} is open to other machines, and without tokens everybody there could run the model"
        );
        return Err(UsageError::new(what).hint(
            "set tokens (`tidegate token new --account NAME --file FILE`, then --tokens-file FILE, or TIDEGATE_API_TOKENS); \
             or listen on this machine only (--host 127.0.0.1); or say that it is meant (--allow-anonymous)",
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn other_machines_are_let_in_only_with_tokens_or_on_purpose() {
        for host in ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1"] {
            assert!(
                addresses(host, 1, AccessPolicy::AnonymousByDefault)
                    .await
                    .is_err(),
                "{host}"
            );
            assert!(
                addresses(host, 1, AccessPolicy::Tokens).await.is_ok(),
                "{host}"
            );
            assert!(
                addresses(host, 1, AccessPolicy::AnonymousAllowed)
                    .await
                    .is_ok(),
                "{host}"
            );
        }
        for host in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "localhost",
        ] {
            assert!(
                addresses(host, 1, AccessPolicy::AnonymousByDefault)
                    .await
                    .is_ok(),
                "{host}"
            );
        }
    }
}
