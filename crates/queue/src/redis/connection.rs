//! A connection to one Redis server that is opened again when it is lost.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::url::{Connector, RedisUrl};

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a command may take that does not block.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after the first failed connect; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// A connection that many callers share. The connection of a blocking read has one caller.
pub(super) struct Link {
    url: RedisUrl,
    response_timeout: Duration,
    state: Mutex<LinkState>,
}

struct LinkState {
    connector: Connector,
    connection: Option<MultiplexedConnection>,
    /// Counts the connections, so that a caller discards only the one that failed.
    generation: u64,
    /// When the next attempt to connect may begin, and why the last one failed.
    pause: Option<(Instant, RedisError)>,
    failures: u32,
}

/// A connection in use.
pub(super) struct Linked {
    pub(super) connection: MultiplexedConnection,
    generation: u64,
}

impl Link {
    pub(super) fn new(url: &RedisUrl, response_timeout: Duration) -> Result<Self, RedisError> {
        Ok(Self {
            url: url.clone(),
            response_timeout,
            state: Mutex::new(LinkState {
                connector: url.connector()?,
                connection: None,
                generation: 0,
                pause: None,
                failures: 0,
            }),
        })
    }

    pub(super) fn url(&self) -> &RedisUrl {
        &self.url
    }

    /// The connection; opens one if there is none. Shortly after a failed attempt its error is returned
    /// again, so that callers do not wait for a server that is down.
    pub(super) async fn get(&self) -> Result<Linked, RedisError> {
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.connection {
            return Ok(Linked {
                connection: connection.clone(),
                generation: state.generation,
            });
        }
        if let Some((until, error)) = &state.pause
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        match state.connector.connect(self.response_timeout).await {
            Ok(connection) => {
                state.connection = Some(connection.clone());
                state.generation += 1;
                state.failures = 0;
                state.pause = None;
                Ok(Linked {
                    connection,
                    generation: state.generation,
                })
            }
            Err(error) => {
                let pause = FIRST_PAUSE * 2u32.saturating_pow(state.failures.min(16));
                state.failures += 1;
                state.pause = Some((Instant::now() + pause.min(MAX_PAUSE), error.clone()));
                Err(error)
            }
        }
    }

    /// Discards the connection if it cannot be used after this error. Returns whether it was discarded.
    pub(super) async fn discard_after(&self, linked: &Linked, error: &RedisError) -> bool {
        if !breaks_connection(error) {
            return false;
        }
        let mut state = self.state.lock().await;
        if state.generation == linked.generation {
            state.connection = None;
        }
        true
    }
}

impl Connector {
    async fn connect(
        &mut self,
        response_timeout: Duration,
    ) -> Result<MultiplexedConnection, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(response_timeout));
        match self {
            Self::Server(client) => {
                client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await
            }
            Self::Sentinel(client) => client.get_async_connection_with_config(&config).await,
        }
    }
}

/// Whether another connection is needed: this one is gone or does not answer, or the server is no longer
/// the one that takes writes.
fn breaks_connection(error: &RedisError) -> bool {
    let is_replica = matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
    );
    error.is_io_error() || error.is_unrecoverable_error() || is_replica
}
