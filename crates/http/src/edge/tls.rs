//! TLS: loads the certificate and performs the handshake of a connection.

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

/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The first byte of every handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

/// The certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or is not PEM.
    #[error("failed to read the {what} from `{}`", path.display())]
    File {
        /// Which of the two files, with its option.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// The file contains no certificate.
    #[error("`{}` contains no certificate; it must have at least one `BEGIN CERTIFICATE` block", .0.display())]
    NoCertificate(PathBuf),
    /// The two do not match, or their type is not supported.
    #[error("the certificate `{}` and the key `{}` cannot be used together", certificate.display(), key.display())]
    Pair {
        /// The path of the certificate.
        certificate: PathBuf,
        /// The path of the key.
        key: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

/// The certificate in use, which can be reloaded. Open connections keep the one they started with.
#[derive(Debug)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Loads a certificate chain and its key, both PEM.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let current = RwLock::new(Arc::new(read(certificate, key)?));
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current,
        })
    }

    /// Reads both files again. On an error the certificate in use stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let reloaded = Arc::new(read(&self.certificate, &self.key)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = reloaded;
        Ok(())
    }

    /// Performs the handshake.
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
        tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
            .await
            .unwrap_or_else(|_| Err(TlsAcceptError::Failed(io::ErrorKind::TimedOut.into())))
    }
}

/// The handshake did not succeed.
pub(super) enum TlsAcceptError {
    /// The client speaks plain HTTP; it gets the rejection as a plain response.
    PlainHttp(Stream, Rejection),
    /// The connection failed; rustls has sent an alert where possible.
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
