//! The conformance suite on PostgreSQL.

use std::sync::Arc;

use tidegate_store::conformance::postgres_server::{SharedPostgres, TestDatabase};
use tidegate_store::{PostgresOptions, PostgresStore};

async fn open() -> (TestDatabase, Arc<PostgresStore>) {
    let database = SharedPostgres::start().database();
    let store = PostgresStore::open(&database.url(), &PostgresOptions::default())
        .await
        .expect("an empty store");
    (database, Arc::new(store))
}

tidegate_store::conformance!(open);
tidegate_store::conformance!(@cluster_leases open);
tidegate_store::conformance!(@cluster_attempts open);
