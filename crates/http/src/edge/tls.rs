//! TLS: the certificate, and the handshake in front of a connection.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::rejection::Rejection;
use super::stream::Stream;

/// A handshake must be over in this time.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The first byte of every handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

/// The certificate and its key do not make a TLS server.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else.
    #[error("`{}` cannot be used as the {what}", path.display())]
    File {
        /// Which of the two.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: pem::Error,
    },
    /// There is no certificate in the file.
    #[error("`{}` has no certificate in it; it must have at least one block `BEGIN CERTIFICATE`", .0.display())]
    NoCertificate(PathBuf),
    /// They do not belong together, or are of a kind that is not known.
    #[error("the certificate `{}` and the key `{}` cannot be used together", certificate.display(), key.display())]
    Pair {
        /// The file of the certificate.
        certificate: PathBuf,
        /// The file of the key.
        key: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
}

/// A certificate in use. Connections that are open keep the one they were made with.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads a certificate (with those that vouch for it) and its key, both PEM.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let current = RwLock::new(Arc::new(read(certificate, key)?));
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current,
        })
    }

    /// Reads both files again. If they are no good, those that are in use stay.
    pub fn reload(&self) -> Result<(), TlsError> {
        let fresh = Arc::new(read(&self.certificate, &self.key)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// Shakes hands.
    pub(super) async fn accept(&self, stream: TcpStream) -> Result<Stream, TlsAcceptError> {
        let acceptor = TlsAcceptor::from(Arc::clone(
            &self.current.read().unwrap_or_else(PoisonError::into_inner),
        ));
        let handshake = async {
            let mut first = [0];
            if stream.peek(&mut first).await.is_ok_and(|len| len == 1)
                && first[0] != HANDSHAKE_RECORD
            {
                return Err(TlsAcceptError::PlainHttp(
                    Stream::Plain(stream),
                    Rejection::PlainOnTlsPort,
                ));
            }
            acceptor
                .accept(stream)
                .await
                .map(|stream| Stream::Tls(Box::new(stream)))
                .map_err(TlsAcceptError::Failed)
        };
        tokio::time::timeout(HANDSHAKE, handshake)
            .await
            .unwrap_or_else(|_| Err(TlsAcceptError::Failed(io::ErrorKind::TimedOut.into())))
    }
}

/// No TLS could be opened.
pub(super) enum TlsAcceptError {
    /// The caller speaks plain HTTP and can be told so.
    PlainHttp(Stream, Rejection),
    /// There is nothing to say, or it has been said.
    Failed(io::Error),
}

fn read(certificate: &Path, key: &Path) -> Result<ServerConfig, TlsError> {
    let file = |what, path: &Path| {
        let path = path.to_owned();
        move |source| TlsError::File { what, path, source }
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(file("certificate (--tls-cert)", certificate))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(certificate.to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_file(key).map_err(file("key (--tls-key)", key))?;
    let pair = |source| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        source,
    };
    let versions = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions();
    let mut config = versions
        .map_err(pair)?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
