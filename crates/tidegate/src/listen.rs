//! Opens the port and the Unix socket, and refuses public addresses without access control.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use tidegate_core::chain;
use tidegate_http::access::Tokens;
use tidegate_http::edge::{EdgeListeners, UnixSocket, UnixSocketError};
use tokio::net::{TcpListener, TcpSocket};

use crate::cli::ListenArgs;
use crate::usage_error::UsageError;

/// The waiting connections of the port.
const BACKLOG: u32 = 1024;

/// When the port accepts connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenPort {
    /// As soon as it is bound: the server answers within a moment.
    AtOnce,
    /// When the server serves requests. It may wait for other servers before, and no client must wait with it.
    WhenServing,
}

/// A port and a Unix socket that the server has.
pub(crate) struct BoundAddresses {
    tcp: BoundPort,
    unix: Option<UnixSocket>,
    /// `--host` and `--port`, for messages.
    name: String,
}

enum BoundPort {
    Closed(TcpSocket),
    Open(TcpListener),
}

impl BoundAddresses {
    /// The address of the port.
    pub(crate) fn local_addr(&self) -> std::io::Result<SocketAddr> {
        match &self.tcp {
            BoundPort::Closed(socket) => socket.local_addr(),
            BoundPort::Open(listener) => listener.local_addr(),
        }
    }

    /// Accepts connections from now on.
    pub(crate) fn listen(self) -> Result<EdgeListeners, UsageError> {
        let tcp = match self.tcp {
            BoundPort::Closed(socket) => socket
                .listen(BACKLOG)
                .map_err(|error| cannot_listen(&self.name, &error))?,
            BoundPort::Open(listener) => listener,
        };
        Ok(EdgeListeners {
            tcp,
            unix: self.unix,
        })
    }
}

/// Takes the address and the socket of the command line.
pub(crate) async fn bind(
    args: &ListenArgs,
    tokens: Option<&Tokens>,
    open: OpenPort,
) -> Result<BoundAddresses, UsageError> {
    bind_with(args, AccessPolicy::of(args, tokens.is_some()), open).await
}

/// Listens on the address of the command line, if this policy allows it.
pub(crate) async fn listen_with(
    args: &ListenArgs,
    policy: AccessPolicy,
) -> Result<EdgeListeners, UsageError> {
    bind_with(args, policy, OpenPort::AtOnce).await?.listen()
}

async fn bind_with(
    args: &ListenArgs,
    policy: AccessPolicy,
    open: OpenPort,
) -> Result<BoundAddresses, UsageError> {
    let ListenArgs { host, port, .. } = args;
    let name = format!("{host}:{port}");
    let addresses = addresses(host, *port, policy).await?;
    let tcp = first_bound(&addresses).and_then(|socket| match open {
        OpenPort::AtOnce => socket.listen(BACKLOG).map(BoundPort::Open),
        OpenPort::WhenServing => Ok(BoundPort::Closed(socket)),
    });
    let tcp = tcp.map_err(|error| cannot_listen(&name, &error))?;
    let unix = args.socket.as_deref().map(unix_socket).transpose()?;
    Ok(BoundAddresses { tcp, unix, name })
}

/// A socket with the first of the addresses that this machine has.
fn first_bound(addresses: &[SocketAddr]) -> std::io::Result<TcpSocket> {
    let bind = |address: &SocketAddr| {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        // Connections of a previous process must not keep the port.
        socket.set_reuseaddr(true)?;
        socket.bind(*address)?;
        Ok(socket)
    };
    let mut last_error = ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match bind(address) {
            Ok(socket) => return Ok(socket),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

fn cannot_listen(name: &str, error: &std::io::Error) -> UsageError {
    let usage = UsageError::new(format!("cannot listen on {name}: {error}"));
    match error.kind() {
        ErrorKind::AddrInUse => usage.hint("another program uses this port; choose another with --port, or a free one with --port 0"),
        _ => usage.hint("check --host and --port"),
    }
}

fn unix_socket(path: &Path) -> Result<UnixSocket, UsageError> {
    UnixSocket::bind(path).map_err(|error| {
        let usage = UsageError::new(format!("cannot listen on --socket: {}", chain(&error)));
        match error {
            UnixSocketError::InUse(_) | UnixSocketError::NotASocket(_) => {
                usage.hint("choose another path with --socket")
            }
            UnixSocketError::System { .. } => usage.hint(
                "its folder must exist and be writable, and the path must be shorter than 108 bytes",
            ),
        }
    })
}

/// Which clients the server accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessPolicy {
    /// Clients with a token.
    Tokens,
    /// All clients, because of --allow-anonymous.
    AnonymousAllowed,
    /// All clients, because no option says otherwise.
    AnonymousByDefault,
}

impl AccessPolicy {
    /// The policy of a server with or without tokens.
    pub(crate) fn of(args: &ListenArgs, has_tokens: bool) -> Self {
        if has_tokens {
            Self::Tokens
        } else if args.allow_anonymous {
            Self::AnonymousAllowed
        } else {
            Self::AnonymousByDefault
        }
    }
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
