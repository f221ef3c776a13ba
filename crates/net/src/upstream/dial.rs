//! Opens connections to one backend: resolves its host, connects, and performs the TLS handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::address::{UpstreamAddress, UpstreamScheme, UpstreamVersion};
use super::error::UpstreamError;
use super::io::UpstreamIo;
use super::pool::UpstreamConfig;
use crate::ServerTrust;

/// Detects backends that disappear without closing the connection while a response is awaited.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(15))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// Opens connections to one backend.
pub(super) struct Dialer {
    address: UpstreamAddress,
    connect_timeout: Duration,
    dns_ttl: Duration,
    tls: Arc<TlsConfigs>,
    resolved: Mutex<Option<Resolved>>,
}

/// The addresses of the host when it was last resolved. The one that was connected to last is the first.
#[derive(Clone)]
struct Resolved {
    at: Instant,
    addresses: Vec<SocketAddr>,
}

impl Dialer {
    pub(super) fn new(
        address: UpstreamAddress,
        config: &UpstreamConfig,
        tls: Arc<TlsConfigs>,
    ) -> Self {
        Self {
            address,
            connect_timeout: config.connect_timeout,
            dns_ttl: config.dns_ttl,
            tls,
            resolved: Mutex::new(None),
        }
    }

    /// Opens a connection.
    pub(super) async fn dial(&self) -> Result<UpstreamIo, UpstreamError> {
        let connecting = async {
            let stream = self.connect().await?;
            match self.address.scheme {
                UpstreamScheme::Http => Ok(UpstreamIo::plain(stream)),
                UpstreamScheme::Https => self.handshake(stream).await,
            }
        };
        self.in_time(connecting).await?
    }

    /// Waits for a part of opening a connection.
    pub(super) async fn in_time<T>(
        &self,
        opening: impl Future<Output = T>,
    ) -> Result<T, UpstreamError> {
        let result = timeout(self.connect_timeout, opening).await;
        result.map_err(|_| self.timed_out())
    }

    /// Tries the addresses one after the other; each gets an equal share of the time.
    async fn connect(&self) -> Result<TcpStream, UpstreamError> {
        let addresses = self.resolve().await?;
        let share =
            self.connect_timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut failure = None;
        for address in &addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    self.prefer(*address);
                    configure(&stream);
                    return Ok(stream);
                }
                Ok(Err(error)) => failure = Some(error),
                Err(_) => {}
            }
        }
        // Addresses may be outdated.
        self.resolved().take();
        Err(match failure {
            Some(source) => UpstreamError::Connect {
                address: self.address.clone(),
                source,
            },
            None => self.timed_out(),
        })
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, UpstreamError> {
        let (host, port) = (&*self.address.host, self.address.port);
        if let Some(ip) = self.address.ip.or_else(|| host.parse().ok()) {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let last = self.resolved().clone();
        if let Some(Resolved { at, addresses }) = &last
            && at.elapsed() < self.dns_ttl
        {
            return Ok(addresses.clone());
        }
        let found = tokio::net::lookup_host((host, port)).await;
        let error = match found.map(Iterator::collect::<Vec<_>>) {
            Ok(addresses) if !addresses.is_empty() => {
                *self.resolved() = Some(Resolved {
                    at: Instant::now(),
                    addresses: addresses.clone(),
                });
                return Ok(addresses);
            }
            Ok(_) => io::Error::new(io::ErrorKind::NotFound, "the host has no address"),
            Err(error) => error,
        };
        // The last known addresses are used while no name server answers.
        match last {
            Some(last) => Ok(last.addresses),
            None => Err(UpstreamError::Resolve {
                address: self.address.clone(),
                source: error,
            }),
        }
    }

    fn prefer(&self, connected: SocketAddr) {
        if let Some(resolved) = &mut *self.resolved()
            && let Some(index) = resolved
                .addresses
                .iter()
                .position(|known| *known == connected)
        {
            resolved.addresses.swap(0, index);
        }
    }

    async fn handshake(&self, stream: TcpStream) -> Result<UpstreamIo, UpstreamError> {
        let failed = |source| UpstreamError::Tls {
            address: self.address.clone(),
            source,
        };
        let config = self.tls.get(self.address.version).map_err(failed)?;
        let name = ServerName::try_from(self.address.host.to_string())
            .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map(UpstreamIo::tls)
            .map_err(failed)
    }

    fn resolved(&self) -> std::sync::MutexGuard<'_, Option<Resolved>> {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timed_out(&self) -> UpstreamError {
        UpstreamError::ConnectTimeout {
            address: self.address.clone(),
            limit: self.connect_timeout,
        }
    }
}

fn configure(stream: &TcpStream) {
    // Without these the connection still works.
    stream.set_nodelay(true).ok();
    SockRef::from(stream).set_tcp_keepalive(&KEEPALIVE).ok();
}

/// The TLS settings of all backends, created when the first one needs them: the certificates of the
/// system take time and memory.
pub(super) struct TlsConfigs {
    trust: ServerTrust,
    http1: OnceLock<Arc<ClientConfig>>,
    http2: OnceLock<Arc<ClientConfig>>,
}

impl TlsConfigs {
    pub(super) fn new(trust: ServerTrust) -> Self {
        Self {
            trust,
            http1: OnceLock::new(),
            http2: OnceLock::new(),
        }
    }

    fn get(&self, version: UpstreamVersion) -> io::Result<Arc<ClientConfig>> {
        let (cell, protocol) = match version {
            UpstreamVersion::Http1 => (&self.http1, &b"http/1.1"[..]),
            UpstreamVersion::Http2 => (&self.http2, &b"h2"[..]),
        };
        if let Some(config) = cell.get() {
            return Ok(Arc::clone(config));
        }
        let mut config = self.trust.client_config().map_err(io::Error::other)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(Arc::clone(cell.get_or_init(|| Arc::new(config))))
    }
}
