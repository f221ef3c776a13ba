//! How the server meets its callers: how many connections, how long, and with TLS or without.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::chain;
use tidegate_http::edge::{Edge, Tls, descriptors};

use crate::cli::{Door, Serve};
use crate::failure::Usage;
use crate::reload::Reload;

/// How long headers may take, and how long an idle connection is kept, where nothing is said.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// What the command line says about connections. Takes as many file descriptors as this process may
/// have, and reads the certificate, now and whenever it is told to read it again.
pub(crate) fn edge(args: &Serve, reload: &mut Reload) -> Result<Edge, Usage> {
    Ok(Edge {
        max_connections: args.max_connections.unwrap_or_else(descriptors::default_connections),
        header_timeout: args.header_timeout,
        ..plain_edge(&args.door, reload)?
    })
}

/// The same with the usual limits.
pub(crate) fn plain_edge(door: &Door, reload: &mut Reload) -> Result<Edge, Usage> {
    descriptors::raise_limit();
    let files = door.tls_cert.as_deref().zip(door.tls_key.as_deref());
    let tls = files.map(|(certificate, key)| tls(certificate, key)).transpose()?;
    if let Some(tls) = &tls {
        let tls = Arc::clone(tls);
        reload.actions.push(("certificate", Box::new(move || Ok(tls.reload()?))));
    }
    Ok(Edge { max_connections: descriptors::default_connections(), header_timeout: HEADER_TIMEOUT, tls, traffic: Arc::default() })
}

/// How the server's address begins.
pub(crate) fn scheme(edge: &Edge) -> &'static str {
    if edge.tls.is_some() { "https" } else { "http" }
}

fn tls(certificate: &Path, key: &Path) -> Result<Arc<Tls>, Usage> {
    Tls::load(certificate, key).map(Arc::new).map_err(|error| {
        let hint = "both are PEM files, and --tls-key is the key of the first certificate in --tls-cert";
        Usage::new(format!("no HTTPS: {}", chain(&error))).hint(hint)
    })
}
