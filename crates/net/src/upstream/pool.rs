//! The pool: finds the connections of an address, and closes what is no longer used.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::{Request, Response};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::address::UpstreamAddress;
use super::body::UpstreamBody;
use super::dial::TlsConfigs;
use super::error::UpstreamError;
use super::host::{HostUse, UpstreamHost};
use super::request_body::UpstreamRequestBody;
use crate::ServerTrust;

/// The shortest time between two sweeps.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(20);

/// The settings of a pool.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// How long it may take to open a connection, with the resolution of its host and its TLS handshake.
    pub connect_timeout: Duration,
    /// How long a connection is kept without a request. Backends close idle connections too: uvicorn after
    /// 5 s.
    pub idle_limit: Duration,
    /// The most HTTP/1.1 connections without a request for each address.
    pub max_idle: usize,
    /// How long the addresses of a host are used before it is resolved again.
    pub dns_ttl: Duration,
    /// Which certificate of a backend is accepted.
    pub server_trust: ServerTrust,
}

impl Default for UpstreamConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            idle_limit: Duration::from_secs(4),
            max_idle: 256,
            dns_ttl: Duration::from_secs(5),
            server_trust: ServerTrust::System,
        }
    }
}

/// Connections to backends. Clones share them.
#[derive(Clone)]
pub struct UpstreamPool {
    shared: Arc<PoolState>,
}

struct PoolState {
    config: UpstreamConfig,
    tls: Arc<TlsConfigs>,
    tasks: TaskTracker,
    /// Read by every request, so it is never locked; written when an address is new or not used any more.
    hosts: ArcSwap<HashMap<UpstreamAddress, Arc<UpstreamHost>>>,
    /// Ends the task that sweeps.
    _sweeping: DropGuard,
}

impl UpstreamPool {
    /// Creates a pool. `tasks` gets a task that closes idle connections, and one for each HTTP/2
    /// connection; all end when the pool and the responses are dropped.
    pub fn new(config: UpstreamConfig, tasks: &TaskTracker) -> Self {
        let stop = CancellationToken::new();
        let interval = (config.idle_limit / 2).max(MIN_SWEEP_INTERVAL);
        let shared = Arc::new(PoolState {
            tls: Arc::new(TlsConfigs::new(config.server_trust.clone())),
            config,
            tasks: tasks.clone(),
            hosts: ArcSwap::default(),
            _sweeping: stop.clone().drop_guard(),
        });
        tasks.spawn(sweep_regularly(Arc::downgrade(&shared), interval, stop));
        Self { shared }
    }

    /// Sends a request and returns the head of its response, of any status. The target of the request is
    /// a path with an optional query. A missing `Host` header is added; `Content-Length` and
    /// `Transfer-Encoding` are set according to the body, except for a stream. Headers of the client's
    /// own connection must not be among the headers.
    ///
    /// If a connection that was idle turns out to be closed, the request is sent again on a fresh one:
    /// the failure came at once and before any byte of a response, so that the backend has not worked on
    /// the request. Streamed bodies and upgrades use fresh connections only.
    ///
    /// Dropping the future closes the connection. There is no limit on the time of the response.
    pub async fn send(
        &self,
        to: &UpstreamAddress,
        request: Request<UpstreamRequestBody>,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        self.shared.host(to).send(request).await
    }
}

impl PoolState {
    fn host(&self, address: &UpstreamAddress) -> Arc<UpstreamHost> {
        if let Some(host) = self.hosts.load().get(address) {
            return Arc::clone(host);
        }
        let new = Arc::new(UpstreamHost::new(
            address.clone(),
            &self.config,
            Arc::clone(&self.tls),
            self.tasks.clone(),
        ));
        self.hosts.rcu(|hosts| {
            let mut hosts = HashMap::clone(hosts);
            hosts
                .entry(address.clone())
                .or_insert_with(|| Arc::clone(&new));
            hosts
        });
        // Another request may have added it first.
        self.hosts.load().get(address).cloned().unwrap_or(new)
    }

    fn sweep(&self) {
        let hosts = self.hosts.load();
        let mut unused = hosts
            .iter()
            .filter(|(_, host)| host.sweep() == HostUse::Unused && Arc::strong_count(host) == 1)
            .map(|(address, _)| address)
            .peekable();
        if unused.peek().is_none() {
            return;
        }
        let unused: Vec<_> = unused.cloned().collect();
        // A request that has just got one of them keeps it; its connection is closed after it.
        self.hosts.rcu(|hosts| {
            let mut hosts = HashMap::clone(hosts);
            hosts.retain(|address, _| !unused.contains(address));
            hosts
        });
    }
}

async fn sweep_regularly(pool: Weak<PoolState>, interval: Duration, stop: CancellationToken) {
    while stop
        .run_until_cancelled(tokio::time::sleep(interval))
        .await
        .is_some()
    {
        let Some(pool) = pool.upgrade() else { return };
        pool.sweep();
    }
}

impl fmt::Debug for UpstreamPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.shared.hosts.load();
        f.debug_set().entries(hosts.keys()).finish()
    }
}
