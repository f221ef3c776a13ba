//! Opens the port, and refuses public addresses without access control.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tidegate_http::access::Tokens;
use tokio::net::TcpListener;

use crate::cli::ListenArgs;
use crate::usage_error::UsageError;

/// Listens on the address of the command line.
pub(crate) async fn listen(
    args: &ListenArgs,
    tokens: Option<&Tokens>,
) -> Result<TcpListener, UsageError> {
    let ListenArgs { host, port, .. } = args;
    let policy = match tokens {
        Some(_) => AccessPolicy::Tokens,
        None if args.allow_anonymous => AccessPolicy::AnonymousAllowed,
        None => AccessPolicy::AnonymousByDefault,
    };
    let addresses = addresses(host, *port, policy).await?;
    TcpListener::bind(addresses.as_slice()).await.map_err(|error| {
        let usage = UsageError::new(format!("cannot listen on {host}:{port}: {error}"));
        match error.kind() {
            ErrorKind::AddrInUse => usage.hint("another program uses this port; choose another with --port, or a free one with --port 0"),
            _ => usage.hint("check --host and --port"),
        }
    })
}

/// Which clients the server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessPolicy {
    /// Clients with a token.
    Tokens,
    /// All clients, because of --allow-anonymous.
    AnonymousAllowed,
    /// All clients, because no option says otherwise.
    AnonymousByDefault,
}

/// The addresses of a host. A public one needs tokens or --allow-anonymous.
async fn addresses(
    host: &str,
    port: u16,
    policy: AccessPolicy,
) -> Result<Vec<SocketAddr>, UsageError> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<_> = found
        .map_err(|error| {
            UsageError::new(format!(
                "--host `{host}` is not an address or a known name: {error}"
            ))
            .hint("give an address of this machine, such as 127.0.0.1 or 0.0.0.0")
        })?
        .collect();
    let public = found
        .iter()
        .any(|address| !address.ip().to_canonical().is_loopback());
    if public && policy == AccessPolicy::AnonymousByDefault {
        let message = format!(
            "--host {host} is reachable from other machines, and without tokens any client could run the model"
        );
        return Err(UsageError::new(message).hint(
            "create tokens (`tidegate token new --account NAME --file FILE`, then --tokens-file FILE, or TIDEGATE_API_TOKENS); \
             or listen only on this machine (--host 127.0.0.1); or accept all clients (--allow-anonymous)",
        ));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn public_addresses_need_tokens_or_allow_anonymous() {
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
