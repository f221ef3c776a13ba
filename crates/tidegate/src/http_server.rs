//! The HTTP server as a future that is polled next to other work, and its shutdown.

use std::time::Duration;

use tidegate_core::port::BoxFuture;
use tidegate_http::edge::{self, EdgeConfig, EdgeControl, EdgeListeners, EdgeService};

/// The HTTP server. It makes progress only inside [`HttpServer::while_running`] and
/// [`HttpServer::finish`].
pub(crate) struct HttpServer {
    serving: BoxFuture<()>,
    has_ended: bool,
    control: EdgeControl,
}

impl HttpServer {
    pub(crate) fn start(
        listeners: impl Into<EdgeListeners>,
        service: impl EdgeService,
        config: EdgeConfig,
    ) -> Self {
        let control = EdgeControl::default();
        let serving = edge::serve(listeners.into(), service, config, control.clone());
        Self {
            serving: Box::pin(serving),
            has_ended: false,
            control,
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

    /// Closes every connection after its next response. Connections are still accepted, so that
    /// clients that do not know yet that the server shuts down get responses.
    pub(crate) fn begin_drain(&self) {
        self.control.begin_drain();
    }

    /// Shuts down behind a load balancer: accepts connections for `grace`, while the readiness check
    /// fails already, then waits up to `timeout` for open requests and streams.
    pub(crate) async fn drain(&mut self, grace: Duration, timeout: Duration) {
        self.begin_drain();
        self.while_running(tokio::time::sleep(grace)).await;
        self.stop_accepting();
        self.finish(timeout).await;
    }

    /// Accepts no more connections. Open requests go on.
    pub(crate) fn stop_accepting(&self) {
        self.control.stop();
    }

    /// Waits up to `grace` for open requests and streams, then closes their connections.
    pub(crate) async fn finish(&mut self, grace: Duration) {
        self.finish_requests(grace).await;
        if !self.has_ended {
            self.control.abort();
            (&mut self.serving).await;
            self.has_ended = true;
        }
    }

    /// Accepts no more connections, and waits up to `limit` for open requests and streams. Their connections
    /// stay open after that.
    pub(crate) async fn finish_requests(&mut self, limit: Duration) {
        self.stop_accepting();
        if !self.has_ended {
            let ended = tokio::time::timeout(limit, &mut self.serving).await;
            self.has_ended = ended.is_ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn a_drain_serves_new_connections_until_its_grace_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = EdgeConfig {
            max_connections: 10,
            header_timeout: Duration::from_secs(30),
            header_timeout_flag: None,
            tls: None,
            origin_policy: None,
            request_metrics: Arc::default(),
            event_loops: None,
        };
        let routes = Router::new().route("/", get(|| async { "here" }));
        let mut http = HttpServer::start(listener, routes, config);
        let client = async {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let mut response = String::new();
            client.read_to_string(&mut response).await.unwrap();
            assert!(response.contains("connection: close\r\n"), "{response}");
            assert!(response.ends_with("here"), "{response}");
        };
        let drain = http.drain(Duration::from_millis(500), Duration::from_secs(20));
        tokio::join!(drain, client);
        assert!(TcpStream::connect(address).await.is_err());
    }
}
