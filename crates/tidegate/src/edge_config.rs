//! How the server meets its callers: how many connections, how long, and with TLS or without.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::chain;
use tidegate_http::edge::{EdgeConfig, Tls, fd_limit};

use crate::cli::{ListenArgs, ServeArgs};
use crate::reload::Reload;
use crate::usage_error::UsageError;

/// How long headers may take, and how long an idle connection is kept, where nothing is said.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// What the command line says about connections. Takes as many file descriptors as this process may
/// have, and reads the certificate, now and whenever it is told to read it again.
pub(crate) fn edge(args: &ServeArgs, reload: &mut Reload) -> Result<EdgeConfig, UsageError> {
    Ok(EdgeConfig {
        max_connections: args
            .max_connections
            .unwrap_or_else(fd_limit::default_max_connections),
        header_timeout: args.header_timeout,
        ..plain_edge(&args.listen, reload)?
    })
}

/// The certificate and its key, if there is to be HTTPS. The one may come from the command line and the other from
/// a file, so clap cannot say that they belong together.
fn certificate<'a>(
    certificate: Option<&'a Path>,
    key: Option<&'a Path>,
) -> Result<Option<(&'a Path, &'a Path)>, UsageError> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(UsageError::new("--tls-cert needs --tls-key")
            .hint("name the key of the certificate with --tls-key FILE")),
        (None, Some(_)) => Err(UsageError::new("--tls-key needs --tls-cert")
            .hint("name the certificate with --tls-cert FILE")),
    }
}

/// The same with the usual limits.
pub(crate) fn plain_edge(door: &ListenArgs, reload: &mut Reload) -> Result<EdgeConfig, UsageError> {
    fd_limit::raise_limit();
    let files = certificate(door.tls_cert.as_deref(), door.tls_key.as_deref())?;
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
        tls,
        request_metrics: Arc::default(),
    })
}

/// How the server's address begins.
pub(crate) fn scheme(edge: &EdgeConfig) -> &'static str {
    if edge.tls.is_some() { "https" } else { "http" }
}

fn tls(certificate: &Path, key: &Path) -> Result<Arc<Tls>, UsageError> {
    Tls::load(certificate, key).map(Arc::new).map_err(|error| {
        let hint =
            "both are PEM files, and --tls-key is the key of the first certificate in --tls-cert";
        UsageError::new(format!("no HTTPS: {}", chain(&error))).hint(hint)
    })
}
