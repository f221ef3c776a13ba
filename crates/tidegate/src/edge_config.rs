//! The configuration of the HTTP edge: number of connections, timeouts, TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::chain;
use tidegate_http::edge::{EdgeConfig, Tls, fd_limit};

use crate::cli::ListenArgs;
use crate::reload::Reload;
use crate::usage_error::UsageError;

/// The default time for the headers of a request, and for which an idle connection stays open.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// The configuration with default limits. Raises the limit on file descriptors and loads the
/// certificate, now and on every reload.
pub(crate) fn read(args: &ListenArgs, reload: &mut Reload) -> Result<EdgeConfig, UsageError> {
    fd_limit::raise_limit();
    let files = certificate(args.tls_cert.as_deref(), args.tls_key.as_deref())?;
    let tls = files
        .map(|(certificate, key)| tls(certificate, key))
        .transpose()?;
    if let Some(tls) = &tls {
        let tls = Arc::clone(tls);
        reload
            .actions
            .push(("certificate", Box::new(move || Ok(tls.reload()?))));
    }
    Ok(EdgeConfig {
        max_connections: fd_limit::default_max_connections(),
        header_timeout: HEADER_TIMEOUT,
        header_timeout_flag: None,
        tls,
        // Known when the tokens are.
        origin_policy: None,
        request_metrics: Arc::default(),
        event_loops: None,
    })
}

/// The certificate and its key, for HTTPS. clap cannot check that they come together, because the
/// configuration file may name one and the command line the other.
fn certificate<'a>(
    certificate: Option<&'a Path>,
    key: Option<&'a Path>,
) -> Result<Option<(&'a Path, &'a Path)>, UsageError> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(UsageError::new("--tls-cert needs --tls-key")
            .hint("give the private key of the certificate with --tls-key FILE")),
        (None, Some(_)) => Err(UsageError::new("--tls-key needs --tls-cert")
            .hint("give the certificate with --tls-cert FILE")),
    }
}

/// The scheme of the server's URL.
pub(crate) fn scheme(edge: &EdgeConfig) -> &'static str {
    if edge.tls.is_some() { "https" } else { "http" }
}

fn tls(certificate: &Path, key: &Path) -> Result<Arc<Tls>, UsageError> {
    Tls::load(certificate, key).map(Arc::new).map_err(|error| {
        let hint =
            "both files must be PEM, and --tls-key must be the key of the first certificate in --tls-cert";
        UsageError::new(format!("failed to load the TLS certificate: {}", chain(&error))).hint(hint)
    })
}
