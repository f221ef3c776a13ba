//! Which TLS certificate of a tidegate server the command line accepts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::ClientBuilder;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::ring;
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
}

fn config(listed: Vec<CertificateDer<'static>>) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    // The bundle of a system may have certificates of a kind that webpki does not know.
    roots.add_parsable_certificates(listed.iter().cloned());
    let by_authority =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
    let verifier = ListedVerifier {
        by_authority,
        listed,
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
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
