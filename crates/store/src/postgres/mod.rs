//! The store in a PostgreSQL database, which many processes can share.
//!
//! One *writer* task commits all waiting changes in one transaction. Reads, and changes of many rows, run
//! on connections of a pool. Settings are made per transaction, and no statement needs a name that a
//! pooler (pgbouncer) would lose, so a pooler may give each transaction another connection. The clock of
//! the database decides about leases, claims, the schedule of the outbox and deadlines.
//!
//! ```text
//!   caller ──change──► writer ──one transaction──► PostgreSQL
//!   caller ──read────► pool   ────────────────────────┘
//! ```

mod acquire;
mod attempts;
mod connection;
mod counts;
mod documents;
mod endpoint_owners;
mod error;
mod file_port;
mod files;
mod heartbeat;
mod import;
mod import_files;
mod interim;
mod jobs;
mod lease_port;
mod leases;
mod list;
mod open;
mod outbox;
mod outbox_take;
mod owned_endpoint;
mod port;
mod progress;
mod query;
mod queue_epoch;
mod reconcile;
mod repeated;
mod retention;
mod rows;
mod schema;
mod server_lock;
mod summaries;
mod text;
mod tls;
mod url;
mod writer;

pub use endpoint_owners::{EndpointOwner, OwnerClaim};
pub use open::{DatabaseUse, PostgresOpenError, PostgresOptions};
pub use owned_endpoint::OwnedEndpointStore;
pub use tls::TlsSetupError;
pub use url::{InvalidPostgresUrl, PostgresUrl};

use std::sync::Arc;

use connection::Connections;
use server_lock::ServerLock;
use tidegate_core::store::StoreMetrics;
use writer::ChangeWriter;

/// The store in one database.
pub struct PostgresStore {
    connections: Connections,
    writer: ChangeWriter,
    lock: Option<ServerLock>,
    meter: Arc<StoreMetrics>,
    location: String,
}

impl PostgresStore {
    /// The store's metrics.
    pub fn meter(&self) -> Arc<StoreMetrics> {
        Arc::clone(&self.meter)
    }

    /// Where the database is, without the password.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Waits until another server uses the database that this store was opened for alone. That can happen
    /// after a connection loss. Then this server must stop.
    pub async fn until_replaced(&self) {
        match &self.lock {
            Some(lock) => lock.until_replaced().await,
            None => std::future::pending().await,
        }
    }
}

impl std::fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}
