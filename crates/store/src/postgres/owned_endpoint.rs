//! The store of the process that owns an endpoint. Every change is committed only if its term still lasts: the
//! row of the term is locked until the commit, so that a takeover comes before the change or after it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::job_attempt::JobAttempt;
use tidegate_core::lease::{LeaseRequest, LeaseResult};
use tidegate_core::outbox::{
    MessageFilter, MessageSummary, OutboxCounts, Reopened, SendOutcome, TakeRequest, TakenMessages,
};
use tidegate_core::record::{JobRecord, JobSpec, JobSummary};
use tidegate_core::store::{
    CancelRequestResult, Documents, FinishOutcome, Inserted, JobFilter, JobFinish, JobQuery,
    JobRecords, OpenJob, Page, Store, StoreError,
};
use tidegate_core::{Account, JobId};
use tokio::sync::watch;
use tokio_postgres::Client;

use super::connection::{Connections, LentConnection, TransactionWork};
use super::error::PgError;
use super::port::{InsertedBy, OVERHEAD, check_final, size};
use super::query::{bigint, first, text};
use super::text::escape;
use super::writer::{ChangeWriter, LockOrder};
use super::{PostgresStore, documents, jobs, leases};

/// The store of an endpoint's owner. Reads, and what concerns webhooks, are those of the whole database.
pub struct OwnedEndpointStore {
    store: Arc<PostgresStore>,
    owner: OwnerFence,
    /// The model of the endpoint's jobs.
    model: String,
}

/// A term of an endpoint.
pub(super) struct OwnerFence {
    term: Term,
    /// Whether a change was refused because the term is over.
    is_over: watch::Sender<bool>,
}

#[derive(Clone)]
struct Term {
    endpoint: String,
    number: i64,
}

/// The work of a transaction that needs the term.
struct FencedWork<A, T> {
    term: Term,
    arguments: A,
    work: TransactionWork<A, T>,
}

impl<A: Sync, T> FencedWork<A, T> {
    /// `None` if the term is over.
    async fn run(&self, client: &LentConnection) -> Result<Option<T>, PgError> {
        if !self.term.lasts(client).await? {
            return Ok(None);
        }
        (self.work)(client, &self.arguments).await.map(Some)
    }
}

impl Term {
    async fn lasts(&self, client: &Client) -> Result<bool, PgError> {
        // A renewal of the claim does not wait for this lock, a takeover does.
        const LASTS: &str = "SELECT 1 FROM tidegate.endpoint_owners WHERE endpoint = $1 AND term = $2 FOR KEY SHARE";
        let endpoint = escape(&self.endpoint);
        let params = [text(&endpoint), bigint(&self.number)];
        Ok(first(client, LASTS, &params).await?.is_some())
    }
}

impl OwnerFence {
    /// Runs `work` with the writer, if the term lasts.
    pub(super) async fn write<A, T>(
        &self,
        writer: &ChangeWriter,
        order: LockOrder,
        bytes: usize,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        let fenced = self.fenced(arguments, work);
        let result = writer
            .change(order, bytes, fenced, |client, fenced| {
                Box::pin(fenced.run(client))
            })
            .await?;
        result.ok_or_else(|| self.over())
    }

    /// Runs `work` in a transaction of its own, if the term lasts.
    async fn change<A: Send + Sync, T: Send>(
        &self,
        connections: &Connections,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError> {
        let result = connections
            .change_once(self.fenced(arguments, work), |client, fenced| {
                Box::pin(fenced.run(client))
            })
            .await?;
        result.ok_or_else(|| self.over())
    }

    fn fenced<A, T>(&self, arguments: A, work: TransactionWork<A, T>) -> FencedWork<A, T> {
        FencedWork {
            term: self.term.clone(),
            arguments,
            work,
        }
    }

    fn over(&self) -> StoreError {
        self.is_over.send_replace(true);
        StoreError::Unavailable(format!(
            "another process owns the endpoint `{}` now",
            self.term.endpoint
        ))
    }
}

impl OwnedEndpointStore {
    pub(super) fn new(store: Arc<PostgresStore>, endpoint: &str, model: &str, term: i64) -> Self {
        Self {
            store,
            owner: OwnerFence {
                term: Term {
                    endpoint: endpoint.to_owned(),
                    number: term,
                },
                is_over: watch::Sender::new(false),
            },
            model: model.to_owned(),
        }
    }

    /// Waits until a change was refused because the term is over.
    pub async fn until_over(&self) {
        let mut is_over = self.owner.is_over.subscribe();
        // The sender lives as long as this store.
        is_over.wait_for(|is_over| *is_over).await.ok();
    }

    async fn write<A, T>(
        &self,
        order: LockOrder,
        bytes: usize,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        let writer = &self.store.writer;
        self.owner
            .write(writer, order, bytes, arguments, work)
            .await
    }

    async fn change<A: Send + Sync, T: Send>(
        &self,
        arguments: A,
        work: TransactionWork<A, T>,
    ) -> Result<T, StoreError> {
        let connections = &self.store.connections;
        self.owner.change(connections, arguments, work).await
    }
}

#[async_trait]
impl JobRecords for OwnedEndpointStore {
    async fn lease(&self, request: LeaseRequest) -> Result<LeaseResult, StoreError> {
        let order = LockOrder::Job(request.account.clone(), request.id.clone());
        self.write(order, OVERHEAD, request, |client, request| {
            Box::pin(leases::grant(client, request))
        })
        .await
    }

    async fn finish(&self, finish: JobFinish) -> Result<FinishOutcome, StoreError> {
        check_final(&finish)?;
        let order = LockOrder::Job(finish.account.clone(), finish.id.clone());
        self.write(order, size(&finish), finish, |client, finish| {
            Box::pin(jobs::finish(client, finish))
        })
        .await
    }
}

#[async_trait]
impl Store for OwnedEndpointStore {
    async fn insert(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.store
            .insert_with(InsertedBy::Owner(&self.owner), spec, None, |client, job| {
                Box::pin(jobs::insert(client, job))
            })
            .await
    }

    async fn replace(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.store
            .insert_with(InsertedBy::Owner(&self.owner), spec, None, |client, job| {
                Box::pin(jobs::replace(client, job))
            })
            .await
    }

    async fn insert_leased(
        &self,
        spec: JobSpec,
        lease: LeaseRequest,
    ) -> Result<Inserted, StoreError> {
        self.store
            .insert_with(
                InsertedBy::Owner(&self.owner),
                spec,
                Some(lease),
                |client, job| Box::pin(jobs::insert(client, job)),
            )
            .await
    }

    async fn request_cancel(
        &self,
        account: &Account,
        id: &JobId,
    ) -> Result<CancelRequestResult, StoreError> {
        let order = LockOrder::Job(account.clone(), id.clone());
        let job = (account.clone(), id.clone());
        self.write(order, OVERHEAD, job, |client, (account, id)| {
            Box::pin(jobs::request_cancel(client, account, id))
        })
        .await
    }

    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError> {
        self.store.get(account, id).await
    }

    async fn attempts(&self, account: &Account, id: &JobId) -> Result<Vec<JobAttempt>, StoreError> {
        self.store.attempts(account, id).await
    }

    async fn list(&self, query: JobQuery) -> Result<Page<JobRecord>, StoreError> {
        self.store.list(query).await
    }

    async fn recent(&self, filter: JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        self.store.recent(filter).await
    }

    /// The open jobs of the endpoint.
    async fn open(&self, after: u64, limit: usize) -> Result<Vec<OpenJob>, StoreError> {
        self.store
            .connections
            .read_after_changes(
                (after, limit, self.model.as_str()),
                |client, (after, limit, model)| {
                    Box::pin(jobs::open(client, *after, *limit, Some(model)))
                },
            )
            .await
    }

    async fn remove_data(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.store.remove_data(over_before, limit).await
    }

    async fn forget(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.store.forget(over_before, limit).await
    }

    async fn take_messages(&self, request: TakeRequest) -> Result<TakenMessages, StoreError> {
        self.store.take_messages(request).await
    }

    async fn record_attempt(
        &self,
        id: &str,
        holder: &str,
        outcome: SendOutcome,
    ) -> Result<(), StoreError> {
        self.store.record_attempt(id, holder, outcome).await
    }

    async fn release_message(&self, id: &str, holder: &str) -> Result<(), StoreError> {
        self.store.release_message(id, holder).await
    }

    async fn messages(&self, filter: MessageFilter) -> Result<Vec<MessageSummary>, StoreError> {
        self.store.messages(filter).await
    }

    async fn outbox_counts(&self) -> Result<OutboxCounts, StoreError> {
        self.store.outbox_counts().await
    }

    async fn reopen_message(
        &self,
        id: &str,
        account: Option<Account>,
        window: Duration,
    ) -> Result<Reopened, StoreError> {
        self.store.reopen_message(id, account, window).await
    }
}

#[async_trait]
impl Documents for OwnedEndpointStore {
    async fn put(&self, namespace: &str, name: &str, json: Bytes) -> Result<(), StoreError> {
        self.change(
            (namespace, name, json),
            |client, (namespace, name, json)| {
                Box::pin(documents::put(client, namespace, name, json))
            },
        )
        .await
    }

    async fn put_new(&self, namespace: &str, name: &str, json: Bytes) -> Result<Bytes, StoreError> {
        let stored = self
            .change(
                (namespace, name, json),
                |client, (namespace, name, json)| {
                    Box::pin(documents::put_new(client, namespace, name, json))
                },
            )
            .await?;
        stored.ok_or_else(|| StoreError::Unavailable("the document changes now".to_owned()))
    }

    async fn swap(
        &self,
        namespace: &str,
        name: &str,
        expected: &Bytes,
        json: Bytes,
    ) -> Result<bool, StoreError> {
        self.change(
            (namespace, name, expected, json),
            |client, (namespace, name, expected, json)| {
                Box::pin(documents::swap(client, namespace, name, expected, json))
            },
        )
        .await
    }

    async fn fetch(&self, namespace: &str, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.store.fetch(namespace, name).await
    }

    async fn remove(&self, namespace: &str, name: &str) -> Result<bool, StoreError> {
        self.change((namespace, name), |client, (namespace, name)| {
            Box::pin(documents::remove(client, namespace, name))
        })
        .await
    }

    async fn all(&self, namespace: &str, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        self.store.all(namespace, prefix).await
    }
}
