//! The HTTP server as a future that is polled next to other work, and its shutdown.

use std::time::Duration;

use axum::Router;
use tidegate_core::port::BoxFuture;
use tidegate_http::edge::{self, EdgeConfig};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The HTTP server. It makes progress only inside [`HttpServer::while_running`] and
/// [`HttpServer::finish`].
pub(crate) struct HttpServer {
    serving: BoxFuture<()>,
    has_ended: bool,
    stop: CancellationToken,
    close_connections: CancellationToken,
}

impl HttpServer {
    pub(crate) fn start(listener: TcpListener, routes: Router, config: EdgeConfig) -> Self {
        let (stop, close_connections) = (CancellationToken::new(), CancellationToken::new());
        let serving = edge::serve(
            listener,
            routes,
            config,
            stop.clone(),
            close_connections.clone(),
        );
        Self {
            serving: Box::pin(serving),
            has_ended: false,
            stop,
            close_connections,
        }
    }

    /// Serves requests until `work` ends.
    pub(crate) async fn while_running<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        loop {
            tokio::select! {
                result = &mut work => return result,
                () = &mut self.serving, if !self.has_ended => self.has_ended = true,
            }
        }
    }

    /// Accepts no more connections. Open requests go on.
    pub(crate) fn stop_accepting(&self) {
        self.stop.cancel();
    }

    /// Waits up to `grace` for open requests, then closes their connections.
    pub(crate) async fn finish(&mut self, grace: Duration) {
        if self.has_ended {
            return;
        }
        if tokio::time::timeout(grace, &mut self.serving)
            .await
            .is_err()
        {
            self.close_connections.cancel();
            (&mut self.serving).await;
        }
        self.has_ended = true;
    }
}
