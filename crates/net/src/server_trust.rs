//! Which TLS certificate of a tidegate server the command line accepts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::ClientBuilder;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};

/// Which certificate of a server that the operator chose is accepted.
#[derive(Debug, Clone, Default)]
pub enum ServerTrust {
    /// One that the certificates of the system vouch for.
    #[default]
    System,
    /// One that the certificates of a file vouch for, or that is itself in the file.
    File(Arc<ClientConfig>),
    /// Every certificate: the identity of the server is not checked.
    Anything,
}

/// The certificates in a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read or is not PEM.
    #[error("failed to read certificates from `{}`", path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: pem::Error,
    },
    /// There is no certificate in the file.
    #[error("`{}` contains no certificate; it must have at least one `BEGIN CERTIFICATE` block", .0.display())]
    Empty(PathBuf),
    /// A certificate is malformed.
    #[error("a certificate in `{}` cannot be used", path.display())]
    Unusable {
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
}

impl ServerTrust {
    /// Trusts the certificates of a PEM file, and no others.
    pub fn from_file(path: &Path) -> Result<Self, TrustError> {
        let unreadable = |source| TrustError::File {
            path: path.to_owned(),
            source,
        };
        let listed = CertificateDer::pem_file_iter(path)
            .map_err(unreadable)?
            .collect::<Result<Vec<_>, _>>()
            .map_err(unreadable)?;
        if listed.is_empty() {
            return Err(TrustError::Empty(path.to_owned()));
        }
        let config = config(listed).map_err(|source| TrustError::Unusable {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::File(Arc::new(config)))
    }

    pub(crate) fn apply(&self, builder: ClientBuilder) -> ClientBuilder {
        match self {
            Self::System => builder,
            Self::File(config) => builder.tls_backend_preconfigured((**config).clone()),
            Self::Anything => builder.tls_danger_accept_invalid_certs(true),
        }
    }

    /// The settings of a TLS client.
    pub(crate) fn client_config(&self) -> Result<ClientConfig, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        match self {
            Self::System => {
                let verifier = rustls_platform_verifier::Verifier::new(Arc::clone(&provider))?;
                verified_by(Arc::new(verifier), provider)
            }
            Self::File(config) => Ok((**config).clone()),
            Self::Anything => {
                verified_by(Arc::new(AnyCertificate(Arc::clone(&provider))), provider)
            }
        }
    }
}

fn verified_by(
    verifier: Arc<dyn ServerCertVerifier>,
    provider: Arc<CryptoProvider>,
) -> Result<ClientConfig, rustls::Error> {
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

fn config(listed: Vec<CertificateDer<'static>>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = verifier(listed, &provider)?;
    verified_by(Arc::new(verifier), provider)
}

fn verifier(
    listed: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<ListedVerifier, rustls::Error> {
    let mut roots = RootCertStore::empty();
    // The bundle of a system may have certificates of a kind that webpki does not know.
    roots.add_parsable_certificates(listed.iter().cloned());
    let by_authority =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
    Ok(ListedVerifier {
        by_authority,
        listed,
    })
}

/// Accepts what the listed certificates vouch for and, like OpenSSL, a listed certificate itself: webpki
/// refuses a self-signed one that is marked as an authority, as `openssl req -x509` creates it.
#[derive(Debug)]
struct ListedVerifier {
    by_authority: Arc<WebPkiServerVerifier>,
    listed: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for ListedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.by_authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            Err(error) if concerns_issuer(&error) && self.listed.contains(end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.by_authority
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_authority.supported_verify_schemes()
    }
}

/// Accepts every certificate; the signatures of the handshake are checked.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
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

/// Whether a certificate was refused because of its issuer only. webpki checks the period of validity
/// before.
fn concerns_issuer(error: &rustls::Error) -> bool {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(cause))) => {
            matches!(
                cause.downcast_ref::<webpki::Error>(),
                Some(webpki::Error::CaUsedAsEndEntity)
            )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Both are from `openssl req -x509` for `localhost`, valid from November 2026 for ten years.
    const LISTED: &[u8] = include_bytes!("server_trust/localhost.pem");
    const OTHER: &[u8] = include_bytes!("server_trust/other.pem");
    const IN_2027: u64 = 1_800_000_000;
    const IN_2096: u64 = 4_000_000_000;

    fn verified(pem: &[u8], name: &'static str, at: u64) -> Result<(), rustls::Error> {
        let listed = CertificateDer::from_pem_slice(LISTED).unwrap();
        let presented = CertificateDer::from_pem_slice(pem).unwrap();
        verifier(vec![listed], &Arc::new(ring::default_provider()))?
            .verify_server_cert(
                &presented,
                &[],
                &ServerName::try_from(name).unwrap(),
                &[],
                UnixTime::since_unix_epoch(Duration::from_secs(at)),
            )
            .map(drop)
    }

    #[test]
    fn a_listed_self_signed_certificate_is_trusted_for_its_name_and_time_only() {
        assert_eq!(verified(LISTED, "localhost", IN_2027), Ok(()));
        assert_eq!(verified(LISTED, "127.0.0.1", IN_2027), Ok(()));
        for (pem, name, at) in [
            (OTHER, "localhost", IN_2027),
            (LISTED, "example.com", IN_2027),
            (LISTED, "localhost", IN_2096),
        ] {
            assert!(verified(pem, name, at).is_err(), "{name} {at}");
        }
    }
}
