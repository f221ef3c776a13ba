//! Encrypted connections, with rustls.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::TlsMode;

/// Makes encrypted connections.
pub(super) type TlsConnector = MakeRustlsConnect;

/// Why no encrypted connection can be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    /// The file of `sslrootcert` cannot be used.
    #[error("`sslrootcert={}` cannot be read as certificates in PEM format: {reason}", file.display())]
    Authorities {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Rustls(#[from] rustls::Error),
}

/// The connector for a mode.
pub(super) fn connector(mode: &TlsMode) -> Result<TlsConnector, TlsSetupError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let config = match mode {
        TlsMode::Unverified => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
        TlsMode::Verified(None) => {
            let verifier = rustls_platform_verifier::Verifier::new(provider)?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
                .with_no_client_auth()
        }
        TlsMode::Verified(Some(file)) => builder
            .with_root_certificates(read_authorities(file)?)
            .with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}

fn read_authorities(file: &PathBuf) -> Result<RootCertStore, TlsSetupError> {
    let error = |reason: String| TlsSetupError::Authorities {
        file: file.clone(),
        reason,
    };
    let mut store = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|fault| error(fault.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|fault| error(fault.to_string()))?;
        store
            .add(certificate)
            .map_err(|fault| error(fault.to_string()))?;
    }
    if store.is_empty() {
        return Err(error("it contains none".to_owned()));
    }
    Ok(store)
}

/// Accepts every certificate, as `sslmode=require` of PostgreSQL's own clients does: the connection is
/// encrypted, and the server is not authenticated.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
