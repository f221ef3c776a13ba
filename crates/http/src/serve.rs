//! The listener: accepts connections and hands their requests to the faces.
//!
//! Written on hyper because it needs what `axum::serve` does not offer: no delay for small packets,
//! a limit for headers that never end, and a bounded goodbye.

use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Layer;

use crate::access::Peer;

/// A request's headers must have come in this time.
const HEADER_LIMIT: Duration = Duration::from_secs(30);
/// How long to wait when no connection can be accepted, out of file descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `stop`; then accepts no more, and returns when every open request has been answered
/// or `goodbye` is over.
pub async fn serve(listener: TcpListener, faces: Router, stop: CancellationToken, goodbye: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let tasks = TaskTracker::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_LIMIT);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // The first token of a stream must not wait for a second one.
        stream.set_nodelay(true).ok();
        let faces = Extension(Peer(peer)).layer(faces.clone());
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(faces));
        let connection = graceful.watch(connection);
        let goodbye = goodbye.clone();
        tasks.spawn(async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                },
                () = goodbye.cancelled() => {}
            }
        });
    }
    drop(listener);
    tasks.close();
    tokio::select! {
        () = graceful.shutdown() => {}
        () = goodbye.cancelled() => {}
    }
    tasks.wait().await;
}
