//! Backends with TLS.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use super::backend::{Backend, get, pool_with, soon, text};
use crate::ServerTrust;
use crate::upstream::{UpstreamAddress, UpstreamConfig, UpstreamError, UpstreamScheme};

fn data(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/upstream/tests")
        .join(name)
}

fn acceptor() -> TlsAcceptor {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_file(data("localhost.pem")).unwrap()],
            PrivateKeyDer::from_pem_file(data("localhost.key")).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

fn encrypted(backend: &Backend) -> UpstreamAddress {
    UpstreamAddress {
        scheme: UpstreamScheme::Https,
        host: "localhost".into(),
        ..backend.address.clone()
    }
}

#[tokio::test]
async fn a_backend_with_a_trusted_certificate_is_reached() {
    let backend = Backend::start().await;
    for trust in [
        ServerTrust::from_file(&data("localhost.pem")).unwrap(),
        ServerTrust::Anything,
    ] {
        let pool = pool_with(UpstreamConfig {
            server_trust: trust,
            ..UpstreamConfig::default()
        });
        let server = async {
            let mut stream = soon(acceptor().accept(backend.accept().await.stream))
                .await
                .unwrap();
            let mut head = [0; 16];
            soon(stream.read_exact(&mut head)).await.unwrap();
            assert_eq!(&head, b"GET / HTTP/1.1\r\n");
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            stream.write_all(response).await.unwrap();
            stream.flush().await.unwrap();
            stream
        };
        let address = encrypted(&backend);
        let (sent, _stream) = tokio::join!(pool.send(&address, get("/")), server);
        assert_eq!(text(sent.unwrap()).await.unwrap(), "ok");
    }
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_a_tls_error() {
    let backend = Backend::start().await;
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/server_trust/other.pem");
    let pool = pool_with(UpstreamConfig {
        server_trust: ServerTrust::from_file(&other).unwrap(),
        ..UpstreamConfig::default()
    });
    let server = async {
        acceptor()
            .accept(backend.accept().await.stream)
            .await
            .is_err()
    };
    let address = encrypted(&backend);
    let (sent, refused) = tokio::join!(pool.send(&address, get("/")), server);
    let error = sent.unwrap_err();
    assert!(matches!(error, UpstreamError::Tls { .. }), "{error:?}");
    assert!(error.is_before_request());
    assert!(refused);
}
