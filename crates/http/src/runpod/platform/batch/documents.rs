//! Batches and their requests in the store: one document per batch, and one per request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Account, JobId};

/// The namespaces of batches and of their requests.
pub(super) const BATCHES: &str = "runpod-batches";
pub(super) const REQUESTS: &str = "runpod-batch-requests";
/// The anonymous account in names of documents.
const ANONYMOUS: &str = "~";
/// How long a batch is kept after its last request has ended.
const KEEP_FINISHED: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a draft is kept.
const KEEP_DRAFT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Identifies a batch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BatchKey {
    pub(super) account: Account,
    pub(super) endpoint: String,
    pub(super) id: String,
}

impl BatchKey {
    fn name(&self) -> String {
        format!("{}{}", prefix(&self.account, &self.endpoint), self.id)
    }

    fn read(name: &str) -> Option<Self> {
        let mut parts = name.split('/');
        let (account, endpoint, id) = (parts.next()?, parts.next()?, parts.next()?);
        let account = if account == ANONYMOUS {
            Account::ANONYMOUS
        } else {
            Account::parse(account).ok()?
        };
        Some(Self {
            account,
            endpoint: endpoint.to_owned(),
            id: id.to_owned(),
        })
    }

    /// The id of a request, which is also the id of its job.
    pub(super) fn request(&self, number: u32) -> JobId {
        JobId::parse(&format!("{}-{number:05}", self.id)).expect("the id is short ASCII")
    }
}

fn prefix(account: &Account, endpoint: &str) -> String {
    let account = if account.is_anonymous() {
        ANONYMOUS
    } else {
        account.as_str()
    };
    format!("{account}/{endpoint}/")
}

/// The state of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum BatchState {
    /// It can be changed and does not run.
    Draft,
    /// It runs or has ended.
    Finalized,
    /// Requests that had not started are canceled.
    Cancelled,
}

/// The number of requests by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    pub(super) completed: usize,
    pub(super) failed: usize,
    pub(super) cancelled: usize,
}

impl Tally {
    pub(super) fn count(&mut self, status: &str) {
        match status {
            "COMPLETED" => self.completed += 1,
            "CANCELLED" => self.cancelled += 1,
            _ => self.failed += 1,
        }
    }
}

/// A stored batch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Batch {
    pub(super) name: Option<String>,
    pub(super) state: BatchState,
    pub(super) created_at: Timestamp,
    pub(super) finalized_at: Option<Timestamp>,
    /// When all its requests had ended.
    pub(super) over_at: Option<Timestamp>,
    /// The number of the next request.
    next: u32,
    /// The numbers of removed requests.
    removed: BTreeSet<u32>,
    /// Valid once `over_at` is set.
    pub(super) tally: Tally,
}

impl Batch {
    pub(super) fn new(name: Option<String>) -> Self {
        let (created_at, removed, tally) = (Timestamp::now(), BTreeSet::new(), Tally::default());
        Self {
            name,
            state: BatchState::Draft,
            created_at,
            finalized_at: None,
            over_at: None,
            next: 0,
            removed,
            tally,
        }
    }

    /// The numbers of its requests, in order.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..self.next).filter(|number| !self.removed.contains(number))
    }

    pub(super) fn total(&self) -> usize {
        self.next as usize - self.removed.len()
    }

    /// Allocates the number of a new request.
    pub(super) fn next_number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.removed.insert(number);
    }

    /// Whether it has not ended.
    pub(super) fn is_active(&self) -> bool {
        self.over_at.is_none()
    }

    /// Whether its retention time has passed.
    fn is_expired(&self, now: Timestamp) -> bool {
        let (since, kept) = self
            .over_at
            .map_or((self.created_at, KEEP_DRAFT), |over| (over, KEEP_FINISHED));
        (self.over_at.is_some() || self.state == BatchState::Draft)
            && now.duration_since(since).unsigned_abs() > kept
    }
}

/// A stored request of a batch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum BatchRequest {
    /// The body to run.
    #[serde(rename = "wanted")]
    Pending(Box<RawValue>),
    /// The result, as clients see it.
    #[serde(rename = "over")]
    Finished(Box<RawValue>),
}

/// The store of batches.
#[derive(Clone)]
pub(super) struct BatchDocuments(pub(super) Arc<dyn Documents>);

impl BatchDocuments {
    /// A batch, unless it has expired.
    pub(super) async fn get(&self, key: &BatchKey) -> Result<Option<Batch>, StoreError> {
        let kept: Option<Batch> = self
            .0
            .fetch(BATCHES, &key.name())
            .await?
            .map(|json| from_json(&json))
            .transpose()?;
        Ok(kept.filter(|batch| !batch.is_expired(Timestamp::now())))
    }

    pub(super) async fn put(&self, key: &BatchKey, batch: &Batch) -> Result<(), StoreError> {
        self.0.put(BATCHES, &key.name(), to_json(batch)?).await
    }

    /// The batches of an account at an endpoint, without expired ones.
    pub(super) async fn of_endpoint(
        &self,
        account: &Account,
        endpoint: &str,
    ) -> Result<Vec<(BatchKey, Batch)>, StoreError> {
        let (_, young) = self.partition_by_age(&prefix(account, endpoint)).await?;
        Ok(young)
    }

    /// All batches: expired ones, and the others.
    pub(super) async fn all(
        &self,
    ) -> Result<(Vec<(BatchKey, Batch)>, Vec<(BatchKey, Batch)>), StoreError> {
        self.partition_by_age("").await
    }

    async fn partition_by_age(
        &self,
        prefix: &str,
    ) -> Result<(Vec<(BatchKey, Batch)>, Vec<(BatchKey, Batch)>), StoreError> {
        let (all, now) = (self.with_prefix(prefix).await?, Timestamp::now());
        Ok(all
            .into_iter()
            .partition(|(_, batch)| batch.is_expired(now)))
    }

    /// Removes a batch with its requests.
    pub(super) async fn remove(&self, key: &BatchKey, batch: &Batch) -> Result<(), StoreError> {
        // Concurrently, because the store commits concurrent writes together. The batch last: it lists
        // its requests.
        try_join_all(
            batch
                .numbers()
                .map(|number| self.remove_request(key, number)),
        )
        .await?;
        self.0.remove(BATCHES, &key.name()).await.map(drop)
    }

    async fn with_prefix(&self, prefix: &str) -> Result<Vec<(BatchKey, Batch)>, StoreError> {
        let kept = self.0.all(BATCHES, prefix).await?;
        kept.into_iter()
            .filter_map(|(name, json)| {
                BatchKey::read(&name).map(|key| Ok((key, from_json(&json)?)))
            })
            .collect()
    }

    pub(super) async fn request(
        &self,
        key: &BatchKey,
        number: u32,
    ) -> Result<Option<BatchRequest>, StoreError> {
        self.0
            .fetch(REQUESTS, &request_name(key, number))
            .await?
            .map(|json| from_json(&json))
            .transpose()
    }

    pub(super) async fn put_request(
        &self,
        key: &BatchKey,
        number: u32,
        request: &BatchRequest,
    ) -> Result<(), StoreError> {
        self.0
            .put(REQUESTS, &request_name(key, number), to_json(request)?)
            .await
    }

    pub(super) async fn remove_request(
        &self,
        key: &BatchKey,
        number: u32,
    ) -> Result<(), StoreError> {
        self.0
            .remove(REQUESTS, &request_name(key, number))
            .await
            .map(drop)
    }
}

fn request_name(key: &BatchKey, number: u32) -> String {
    format!("{}/{number:05}", key.name())
}

fn from_json<T: for<'a> Deserialize<'a>>(json: &Bytes) -> Result<T, StoreError> {
    serde_json::from_slice(json).map_err(|error| StoreError::Corrupt(error.to_string()))
}

fn to_json(thing: &impl Serialize) -> Result<Bytes, StoreError> {
    serde_json::to_vec(thing)
        .map(Bytes::from)
        .map_err(|error| StoreError::Invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_key_round_trips_through_its_name() {
        for account in [Account::ANONYMOUS, Account::parse("ann").unwrap()] {
            let key = BatchKey {
                account,
                endpoint: "echo".to_owned(),
                id: "batch-x".to_owned(),
            };
            assert_eq!(BatchKey::read(&key.name()), Some(key));
        }
        assert_eq!(BatchKey::read("ann/echo"), None);
    }

    #[test]
    fn drafts_and_ended_batches_expire() {
        let draft = Batch::new(None);
        let running = Batch {
            state: BatchState::Finalized,
            ..draft.clone()
        };
        let over = Batch {
            over_at: Some(draft.created_at),
            ..running.clone()
        };
        let after = |days: i64| draft.created_at + jiff::SignedDuration::from_hours(24 * days + 1);
        assert_eq!(
            [&draft, &running, &over].map(|batch| batch.is_expired(after(1))),
            [false, false, true]
        );
        assert_eq!(
            [&draft, &running, &over].map(|batch| batch.is_expired(after(7))),
            [true, false, true]
        );
    }

    #[test]
    fn requests_keep_their_numbers() {
        let mut batch = Batch::new(None);
        assert_eq!(
            [
                batch.next_number(),
                batch.next_number(),
                batch.next_number()
            ],
            [0, 1, 2]
        );
        batch.remove(1);
        assert_eq!(
            (
                batch.numbers().collect::<Vec<_>>(),
                batch.total(),
                batch.next_number()
            ),
            (vec![0, 2], 2, 3)
        );
    }
}
