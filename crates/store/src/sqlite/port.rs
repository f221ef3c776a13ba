//! Implements the ports with calls of the writer and of the reader pool.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::Connection;
use tidegate_core::job_attempt::JobAttempt;
use tidegate_core::lease::{LeaseDurability, LeaseRequest, LeaseResult, Nonce};
use tidegate_core::outbox::{
    MessageFilter, MessageSummary, OutboxCounts, Reopened, SendOutcome, TakeRequest, TakenMessages,
};
use tidegate_core::record::{JobRecord, JobSpec, JobSummary};
use tidegate_core::store::{
    CancelRequestResult, Documents, FinishOutcome, Inserted, JobFilter, JobFinish, JobQuery,
    JobRecords, OpenJob, Page, Store, StoreError,
};
use tidegate_core::{Account, JobId, Status};

use super::error::DbError;
use super::{SqliteStore, attempts, documents, jobs, leases, list, outbox, outbox_take, summaries};

/// Roughly how many bytes a change writes besides its payload.
const OVERHEAD: usize = 512;

#[async_trait]
impl JobRecords for SqliteStore {
    async fn lease(&self, request: LeaseRequest) -> Result<LeaseResult, StoreError> {
        match request.durability {
            // A second attempt is rare. Its lease is committed, so that the first one is on record.
            LeaseDurability::Process if request.after_attempt == 0 => {
                self.mark_lease(request).await
            }
            LeaseDurability::Process | LeaseDurability::Machine => self.commit_lease(request).await,
        }
    }

    async fn finish(&self, finish: JobFinish) -> Result<FinishOutcome, StoreError> {
        let (account, id) = (finish.account.clone(), finish.id.clone());
        let opened_at = self.opened_at;
        // An attempt that is lost is ended under another nonce than that of its lease.
        let nonces = [self.marker_nonce(&account, &id), Some(finish.fence.nonce)];
        let outcome = self
            .writer
            .change(size(&finish), move |conn| {
                jobs::finish(conn, &finish, opened_at)
            })
            .await?;
        if matches!(
            outcome,
            FinishOutcome::Committed | FinishOutcome::AlreadyCommitted
        ) {
            for nonce in nonces.into_iter().flatten() {
                self.markers.remove(&account, &id, nonce);
            }
        }
        Ok(outcome)
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn insert(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.insert_with(spec, jobs::insert).await
    }

    async fn replace(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.insert_with(spec, jobs::replace).await
    }

    async fn insert_leased(
        &self,
        spec: JobSpec,
        lease: LeaseRequest,
    ) -> Result<Inserted, StoreError> {
        let opened_at = self.opened_at;
        self.insert_with(spec, move |conn, spec| {
            jobs::insert_leased(conn, spec, &lease, opened_at)
        })
        .await
    }

    async fn request_cancel(
        &self,
        account: &Account,
        id: &JobId,
    ) -> Result<CancelRequestResult, StoreError> {
        let (account, id) = (account.clone(), id.clone());
        self.writer
            .change(OVERHEAD, move |conn| {
                jobs::request_cancel(conn, &account, &id)
            })
            .await
    }

    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError> {
        let (account, id) = (account.clone(), id.clone());
        let found = self
            .readers
            .read(move |conn| jobs::get(conn, &account, &id))
            .await?;
        Ok(found.map(|record| self.with_marker(record)))
    }

    async fn attempts(&self, account: &Account, id: &JobId) -> Result<Vec<JobAttempt>, StoreError> {
        let marker = self.markers.get(account, id);
        let (account, id) = (account.clone(), id.clone());
        self.readers
            .read(move |conn| {
                let Some(columns) = attempts::columns_of(conn, &account, &id)? else {
                    return Ok(Vec::new());
                };
                Ok(columns.with_marker(marker).list()?)
            })
            .await
    }

    async fn list(&self, query: JobQuery) -> Result<Page<JobRecord>, StoreError> {
        self.readers
            .read(move |conn| list::page(conn, &query))
            .await
    }

    async fn recent(&self, filter: JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        self.readers
            .read(move |conn| summaries::recent(conn, &filter))
            .await
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<OpenJob>, StoreError> {
        let found = self
            .readers
            .read(move |conn| jobs::open(conn, after, limit))
            .await?;
        let marked = found.into_iter().map(|job| OpenJob {
            record: self.with_marker(job.record),
            ..job
        });
        Ok(marked.collect())
    }

    async fn remove_data(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.writer
            .change(OVERHEAD * limit.min(OVERHEAD), move |conn| {
                jobs::remove_data(conn, over_before, limit)
            })
            .await
    }

    async fn forget(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.writer
            .change(OVERHEAD * limit.min(OVERHEAD), move |conn| {
                jobs::forget(conn, over_before, limit)
            })
            .await
    }

    async fn take_messages(&self, request: TakeRequest) -> Result<TakenMessages, StoreError> {
        let request = Arc::new(request);
        let chosen = Arc::clone(&request);
        let due = self
            .readers
            .read(move |conn| outbox_take::choose(conn, &chosen))
            .await?;
        let messages = if due.numbers.is_empty() {
            Vec::new()
        } else {
            let (claimed, numbers) = (Arc::clone(&request), due.numbers);
            let numbers = self
                .writer
                .change(OVERHEAD * numbers.len(), move |conn| {
                    outbox_take::claim(conn, &claimed, &numbers)
                })
                .await?;
            self.readers
                .read(move |conn| outbox_take::read(conn, &request, &numbers))
                .await?
        };
        Ok(TakenMessages {
            messages,
            next_due: due.next_due,
        })
    }

    async fn record_attempt(
        &self,
        id: &str,
        holder: &str,
        outcome: SendOutcome,
    ) -> Result<(), StoreError> {
        let (id, holder) = (id.to_owned(), holder.to_owned());
        self.writer
            .change(OVERHEAD, move |conn| {
                outbox::record_attempt(conn, &id, &holder, &outcome)
            })
            .await
    }

    async fn release_message(&self, id: &str, holder: &str) -> Result<(), StoreError> {
        let (id, holder) = (id.to_owned(), holder.to_owned());
        self.writer
            .change(OVERHEAD, move |conn| outbox::release(conn, &id, &holder))
            .await
    }

    async fn messages(&self, filter: MessageFilter) -> Result<Vec<MessageSummary>, StoreError> {
        self.readers
            .read(move |conn| outbox::list(conn, &filter))
            .await
    }

    async fn outbox_counts(&self) -> Result<OutboxCounts, StoreError> {
        self.readers.read(outbox::counts).await
    }

    async fn reopen_message(
        &self,
        id: &str,
        account: Option<Account>,
        window: Duration,
    ) -> Result<Reopened, StoreError> {
        let id = id.to_owned();
        self.writer
            .change(OVERHEAD, move |conn| {
                outbox::reopen(conn, &id, account.as_ref(), window)
            })
            .await
    }
}

impl SqliteStore {
    async fn insert_with(
        &self,
        spec: JobSpec,
        insert: impl Fn(&Connection, &JobSpec) -> Result<Inserted, DbError> + Send + 'static,
    ) -> Result<Inserted, StoreError> {
        let (account, id) = (spec.account.clone(), spec.id.clone());
        let previous = self.marker_nonce(&account, &id);
        let inserted = self
            .writer
            .change(OVERHEAD + spec.input.len(), move |conn| insert(conn, &spec))
            .await?;
        if inserted == Inserted::New
            && let Some(previous) = previous
        {
            // A marker of an ended job with the same id would hold the lease of the new one.
            self.markers.remove(&account, &id, previous);
        }
        Ok(inserted)
    }

    /// Grants a lease that survives a crash of this process.
    async fn mark_lease(&self, request: LeaseRequest) -> Result<LeaseResult, StoreError> {
        let markers = Arc::clone(&self.markers);
        self.lease_reader
            .read(move |conn| {
                leases::grant(conn, &markers, &request, |granted| {
                    Ok(markers.write(&request, granted.number)?)
                })
            })
            .await
    }

    /// Grants a lease, or commits one that this process granted before.
    async fn commit_lease(&self, request: LeaseRequest) -> Result<LeaseResult, StoreError> {
        let markers = Arc::clone(&self.markers);
        let (account, id, nonce) = (request.account.clone(), request.id.clone(), request.nonce);
        let opened_at = self.opened_at;
        let result = self
            .writer
            .change(OVERHEAD, move |conn| {
                leases::grant(conn, &markers, &request, |granted| {
                    for marker in granted.previous.into_iter().chain([granted.lease]) {
                        leases::store(conn, granted.number, marker, opened_at)?;
                    }
                    Ok(())
                })
            })
            .await?;
        if matches!(result, LeaseResult::Granted(_)) {
            self.markers.remove(&account, &id, nonce);
        }
        Ok(result)
    }

    fn marker_nonce(&self, account: &Account, id: &JobId) -> Option<Nonce> {
        let marker = self.markers.get(account, id)?;
        Some(marker.fence.nonce)
    }

    /// The record with the lease that is not in the database yet.
    fn with_marker(&self, record: JobRecord) -> JobRecord {
        match self.markers.get(&record.spec.account, &record.spec.id) {
            Some(marker)
                if !record.status.is_terminal() && record.attempt < marker.fence.attempt =>
            {
                JobRecord {
                    attempt: marker.fence.attempt,
                    status: Status::Processing,
                    started_at: Some(marker.began_at),
                    ..record
                }
            }
            Some(_) | None => record,
        }
    }
}

fn size(finish: &JobFinish) -> usize {
    let output = finish.completion.output.as_ref().map_or(0, Bytes::len);
    let message = finish
        .message
        .as_ref()
        .map_or(0, |message| message.body.len());
    OVERHEAD + output + finish.completion.logs.len() + message
}

#[async_trait]
impl Documents for SqliteStore {
    async fn put(&self, namespace: &str, name: &str, json: Bytes) -> Result<(), StoreError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.writer
            .change(OVERHEAD + json.len(), move |conn| {
                documents::put(conn, &namespace, &name, &json)
            })
            .await
    }

    async fn put_new(&self, namespace: &str, name: &str, json: Bytes) -> Result<Bytes, StoreError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.writer
            .change(OVERHEAD + json.len(), move |conn| {
                documents::put_new(conn, &namespace, &name, &json)
            })
            .await
    }

    async fn swap(
        &self,
        namespace: &str,
        name: &str,
        was: &Bytes,
        json: Bytes,
    ) -> Result<bool, StoreError> {
        let (namespace, name, was) = (namespace.to_owned(), name.to_owned(), was.clone());
        self.writer
            .change(OVERHEAD + json.len(), move |conn| {
                documents::swap(conn, &namespace, &name, &was, &json)
            })
            .await
    }

    async fn fetch(&self, namespace: &str, name: &str) -> Result<Option<Bytes>, StoreError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.readers
            .read(move |conn| documents::fetch(conn, &namespace, &name))
            .await
    }

    async fn remove(&self, namespace: &str, name: &str) -> Result<bool, StoreError> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.writer
            .change(OVERHEAD, move |conn| {
                documents::remove(conn, &namespace, &name)
            })
            .await
    }

    async fn all(&self, namespace: &str, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        let (namespace, prefix) = (namespace.to_owned(), prefix.to_owned());
        self.readers
            .read(move |conn| documents::all(conn, &namespace, &prefix))
            .await
    }
}
