//! The owners of endpoints: which API process of a cluster hands out the jobs of which endpoint.
//!
//! An owner renews its claim; when it does not, another process takes the endpoint over, which begins a new
//! term. The clock of the database decides. A term fences the changes of its owner (`owned_endpoint.rs`).

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::store::StoreError;
use tokio_postgres::Client;

use super::error::PgError;
use super::owned_endpoint::OwnedEndpointStore;
use super::query::{bigint, execute, micros, now, rows, text, texts};
use super::text::escape;
use super::{PostgresStore, rows as records};

/// A process that owns endpoints, or would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerClaim {
    /// Identifies the process.
    pub holder: String,
    /// Where other processes reach it.
    pub url: String,
    /// How long it owns an endpoint without renewing the claim.
    pub lasts: Duration,
}

/// The owner of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointOwner {
    /// The name of the endpoint.
    pub endpoint: String,
    /// The process.
    pub holder: String,
    /// Where other processes reach it.
    pub url: String,
    /// The number of the term, which grows with each change of owner.
    pub term: u64,
    /// How long it owns the endpoint if it does not renew the claim; zero when the claim has expired.
    pub remaining: Duration,
}

/// The endpoints of a claim.
struct Claimed<'a> {
    endpoints: Vec<&'a str>,
    claim: &'a OwnerClaim,
}

impl PostgresStore {
    /// Renews the claims of a process, and gives it those of these endpoints that have no live owner. Returns
    /// the owner of each. An owner keeps an expired claim that no other process has taken over.
    pub async fn claim_endpoints(
        &self,
        endpoints: &[String],
        claim: &OwnerClaim,
    ) -> Result<Vec<EndpointOwner>, StoreError> {
        let endpoints = endpoints.iter().map(String::as_str).collect();
        self.connections
            .change(Claimed { endpoints, claim }, |client, claimed| {
                Box::pin(claim_and_list(client, claimed))
            })
            .await
    }

    /// The owners of these endpoints, as far as they have one.
    pub async fn endpoint_owners(
        &self,
        endpoints: &[String],
    ) -> Result<Vec<EndpointOwner>, StoreError> {
        let endpoints: Vec<&str> = endpoints.iter().map(String::as_str).collect();
        self.connections
            .read(endpoints, |client, endpoints| {
                Box::pin(list(client, endpoints))
            })
            .await
    }

    /// Ends a term: the endpoint has no owner until a process claims it.
    pub async fn release_endpoint(&self, endpoint: &str, term: u64) -> Result<(), StoreError> {
        self.connections
            .change((endpoint, number(term)), |client, (endpoint, term)| {
                Box::pin(release(client, endpoint, *term))
            })
            .await
    }

    /// The store as the owner of an endpoint sees it: it shows the open jobs of `model` alone, and accepts
    /// changes only as long as the term lasts.
    pub fn owned_endpoint(
        self: &Arc<Self>,
        endpoint: &str,
        model: &str,
        term: u64,
    ) -> OwnedEndpointStore {
        OwnedEndpointStore::new(Arc::clone(self), endpoint, model, number(term))
    }
}

fn number(term: u64) -> i64 {
    i64::try_from(term).unwrap_or(i64::MAX)
}

async fn claim_and_list(
    client: &Client,
    claimed: &Claimed<'_>,
) -> Result<Vec<EndpointOwner>, PgError> {
    const RENEW: &str = concat!(
        "UPDATE tidegate.endpoint_owners SET url = $3, alive_until = ",
        now!(),
        " + $4 WHERE endpoint = ANY ($1) AND holder = $2"
    );
    // A change that checked the term holds a lock of the row until it is committed: it is waited for, in
    // the next attempt.
    const TAKE_OVER: &str = concat!(
        "WITH free AS MATERIALIZED (
             SELECT endpoint FROM tidegate.endpoint_owners
             WHERE endpoint = ANY ($1) AND holder <> $2 AND alive_until <= ",
        now!(),
        " ORDER BY endpoint FOR UPDATE SKIP LOCKED)
         UPDATE tidegate.endpoint_owners o SET holder = $2, url = $3, term = o.term + 1, alive_until = ",
        now!(),
        " + $4 FROM free WHERE o.endpoint = free.endpoint"
    );
    const CLAIM: &str = concat!(
        "INSERT INTO tidegate.endpoint_owners (endpoint, holder, url, term, alive_until)
         SELECT name, $2, $3, 1, ",
        now!(),
        " + $4 FROM unnest($1) name ORDER BY name ON CONFLICT DO NOTHING"
    );
    let Claimed { endpoints, claim } = claimed;
    let endpoints: &[&str] = endpoints;
    let lasts = micros(claim.lasts);
    let params = [
        texts(&endpoints),
        text(&claim.holder),
        text(&claim.url),
        bigint(&lasts),
    ];
    for statement in [RENEW, TAKE_OVER, CLAIM] {
        execute(client, statement, &params).await?;
    }
    list(client, endpoints).await
}

async fn list(client: &Client, endpoints: &[&str]) -> Result<Vec<EndpointOwner>, PgError> {
    const LIST: &str = concat!(
        "SELECT endpoint, holder, url, term, alive_until - ",
        now!(),
        " FROM tidegate.endpoint_owners WHERE endpoint = ANY ($1) ORDER BY endpoint"
    );
    rows(client, LIST, &[texts(&endpoints)])
        .await?
        .iter()
        .map(|row| {
            let (term, remaining): (i64, i64) = (row.try_get(3)?, row.try_get(4)?);
            Ok(EndpointOwner {
                endpoint: records::text(row, 0)?,
                holder: records::text(row, 1)?,
                url: records::text(row, 2)?,
                term: term.unsigned_abs(),
                remaining: Duration::from_micros(u64::try_from(remaining).unwrap_or_default()),
            })
        })
        .collect()
}

async fn release(client: &Client, endpoint: &str, term: i64) -> Result<(), PgError> {
    execute(
        client,
        "UPDATE tidegate.endpoint_owners SET alive_until = 0 WHERE endpoint = $1 AND term = $2",
        &[text(&escape(endpoint)), bigint(&term)],
    )
    .await?;
    Ok(())
}
