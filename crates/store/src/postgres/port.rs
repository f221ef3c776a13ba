//! Implements the ports with calls of the writer and of the pool.

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

use super::connection::TransactionWork;
use super::jobs::JobInsert;
use super::outbox::RecordedAttempt;
use super::owned_endpoint::OwnerFence;
use super::writer::LockOrder;
use super::{
    PostgresStore, attempts, documents, jobs, leases, list, outbox, outbox_take, retention,
    summaries,
};

/// Roughly how many bytes a change writes besides its payload.
pub(super) const OVERHEAD: usize = 512;

#[async_trait]
impl JobRecords for PostgresStore {
    /// Every lease survives a crash of the machine.
    async fn lease(&self, request: LeaseRequest) -> Result<LeaseResult, StoreError> {
        let order = LockOrder::Job(request.account.clone(), request.id.clone());
        self.writer
            .change_in_one_step(order, OVERHEAD, request, |client, request| {
                Box::pin(leases::grant(client, request))
            })
            .await
    }

    async fn finish(&self, finish: JobFinish) -> Result<FinishOutcome, StoreError> {
        check_final(&finish)?;
        let order = LockOrder::Job(finish.account.clone(), finish.id.clone());
        let bytes = size(&finish);
        if finish.message.is_none() {
            let finish = self
                .writer
                .change_in_one_step(order, bytes, finish, |client, finish| {
                    Box::pin(jobs::finish(client, finish))
                });
            return finish.await;
        }
        self.writer
            .change(order, bytes, finish, |client, finish| {
                Box::pin(jobs::finish(client, finish))
            })
            .await
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn insert(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.insert_with(InsertedBy::OneStep, spec, None, |client, job| {
            Box::pin(jobs::insert(client, job))
        })
        .await
    }

    async fn replace(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.insert_with(InsertedBy::SeveralSteps, spec, None, |client, job| {
            Box::pin(jobs::replace(client, job))
        })
        .await
    }

    async fn insert_leased(
        &self,
        spec: JobSpec,
        lease: LeaseRequest,
    ) -> Result<Inserted, StoreError> {
        self.insert_with(InsertedBy::OneStep, spec, Some(lease), |client, job| {
            Box::pin(jobs::insert(client, job))
        })
        .await
    }

    async fn request_cancel(
        &self,
        account: &Account,
        id: &JobId,
    ) -> Result<CancelRequestResult, StoreError> {
        let order = LockOrder::Job(account.clone(), id.clone());
        let job = (account.clone(), id.clone());
        self.writer
            .change(order, OVERHEAD, job, |client, (account, id)| {
                Box::pin(jobs::request_cancel(client, account, id))
            })
            .await
    }

    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError> {
        self.connections
            .read_once((account, id), |client, (account, id)| {
                Box::pin(jobs::get(client, account, id))
            })
            .await
    }

    async fn attempts(&self, account: &Account, id: &JobId) -> Result<Vec<JobAttempt>, StoreError> {
        self.connections
            .read((account, id), |client, (account, id)| {
                Box::pin(attempts::of_job(client, account, id))
            })
            .await
    }

    async fn list(&self, query: JobQuery) -> Result<Page<JobRecord>, StoreError> {
        self.connections
            .read(query, |client, query| Box::pin(list::page(client, query)))
            .await
    }

    async fn recent(&self, filter: JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        self.connections
            .read(filter, |client, filter| {
                Box::pin(summaries::recent(client, filter))
            })
            .await
    }

    async fn open(&self, after: u64, limit: usize) -> Result<Vec<OpenJob>, StoreError> {
        self.connections
            .read_after_changes((after, limit), |client, (after, limit)| {
                Box::pin(jobs::open(client, *after, *limit, None))
            })
            .await
    }

    async fn remove_data(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.connections
            .change((over_before, limit), |client, (over_before, limit)| {
                Box::pin(retention::remove_data(client, *over_before, *limit))
            })
            .await
    }

    async fn forget(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        self.connections
            .change((over_before, limit), |client, (over_before, limit)| {
                Box::pin(retention::forget(client, *over_before, *limit))
            })
            .await
    }

    async fn take_messages(&self, request: TakeRequest) -> Result<TakenMessages, StoreError> {
        let due = self
            .connections
            .read(&request, |client, request| {
                Box::pin(outbox_take::choose(client, request))
            })
            .await?;
        let messages = if due.numbers.is_empty() {
            Vec::new()
        } else {
            let numbers = self
                .connections
                .change((&request, due.numbers), |client, (request, numbers)| {
                    Box::pin(outbox_take::claim(client, request, numbers))
                })
                .await?;
            self.connections
                .read((&request.claim, numbers), |client, (claim, numbers)| {
                    Box::pin(outbox_take::read(client, claim, numbers))
                })
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
        let result = RecordedAttempt {
            id: id.to_owned(),
            holder: holder.to_owned(),
            outcome,
        };
        let order = LockOrder::Message(id.to_owned());
        self.writer
            .change(order, OVERHEAD, result, |client, result| {
                Box::pin(outbox::record_attempt(client, result))
            })
            .await
    }

    async fn release_message(&self, id: &str, holder: &str) -> Result<(), StoreError> {
        let order = LockOrder::Message(id.to_owned());
        let claim = (id.to_owned(), holder.to_owned());
        self.writer
            .change(order, OVERHEAD, claim, |client, (id, holder)| {
                Box::pin(outbox::release(client, id, holder))
            })
            .await
    }

    async fn messages(&self, filter: MessageFilter) -> Result<Vec<MessageSummary>, StoreError> {
        self.connections
            .read(filter, |client, filter| {
                Box::pin(outbox::list(client, filter))
            })
            .await
    }

    async fn outbox_counts(&self) -> Result<OutboxCounts, StoreError> {
        self.connections
            .read((), |client, ()| Box::pin(outbox::counts(client)))
            .await
    }

    async fn reopen_message(
        &self,
        id: &str,
        account: Option<Account>,
        window: Duration,
    ) -> Result<Reopened, StoreError> {
        self.connections
            .change((id, account, window), |client, (id, account, window)| {
                Box::pin(outbox::reopen(client, id, account.as_ref(), *window))
            })
            .await
    }
}

/// How a job is inserted.
#[derive(Clone, Copy)]
pub(super) enum InsertedBy<'a> {
    /// By one statement.
    OneStep,
    /// By several.
    SeveralSteps,
    /// By the owner of its endpoint, as long as it is the owner.
    Owner(&'a OwnerFence),
}

impl PostgresStore {
    /// Inserts a job. A job with the same content is the one of an earlier call whose answer was lost.
    pub(super) async fn insert_with(
        &self,
        by: InsertedBy<'_>,
        spec: JobSpec,
        lease: Option<LeaseRequest>,
        insert: TransactionWork<JobInsert, bool>,
    ) -> Result<Inserted, StoreError> {
        let mut retry = self.connections.retry();
        loop {
            let order = LockOrder::Job(spec.account.clone(), spec.id.clone());
            let job = JobInsert {
                spec: spec.clone(),
                lease: lease.clone(),
            };
            let bytes = OVERHEAD + spec.input.len();
            let writer = &self.writer;
            let is_new = match by {
                InsertedBy::OneStep => writer.change_in_one_step(order, bytes, job, insert).await?,
                InsertedBy::SeveralSteps => writer.change(order, bytes, job, insert).await?,
                InsertedBy::Owner(owner) => owner.write(writer, order, bytes, job, insert).await?,
            };
            if is_new {
                return Ok(Inserted::New);
            }
            match self.get(&spec.account, &spec.id).await? {
                Some(record) if is_same(&record, &spec, lease.is_some()) => {
                    return Ok(Inserted::New);
                }
                Some(record) => return Ok(Inserted::Known(Box::new(record))),
                // It was deleted meanwhile.
                None if retry.pause().await => {}
                None => {
                    return Err(StoreError::Unavailable(
                        "the job changes all the time".to_owned(),
                    ));
                }
            }
        }
    }
}

/// Whether a record is that of a new job. Its time of creation distinguishes it from a job that another
/// client creates with the same id and input.
fn is_same(record: &JobRecord, spec: &JobSpec, is_leased: bool) -> bool {
    record.spec == *spec
        && record.completion.is_none()
        && !record.cancel_requested
        && record.attempt == u32::from(is_leased)
}

/// A job ends with a final status.
pub(super) fn check_final(finish: &JobFinish) -> Result<(), StoreError> {
    if finish.status.is_terminal() {
        return Ok(());
    }
    Err(StoreError::Invalid(format!(
        "{:?} is not a final status",
        finish.status
    )))
}

/// Roughly how many bytes the end of a job writes.
pub(super) fn size(finish: &JobFinish) -> usize {
    let output = finish.completion.output.as_ref().map_or(0, Bytes::len);
    let message = finish
        .message
        .as_ref()
        .map_or(0, |message| message.body.len());
    OVERHEAD + output + finish.completion.logs.len() + message
}

#[async_trait]
impl Documents for PostgresStore {
    async fn put(&self, namespace: &str, name: &str, json: Bytes) -> Result<(), StoreError> {
        self.connections
            .change(
                (namespace, name, json),
                |client, (namespace, name, json)| {
                    Box::pin(documents::put(client, namespace, name, json))
                },
            )
            .await
    }

    async fn put_new(&self, namespace: &str, name: &str, json: Bytes) -> Result<Bytes, StoreError> {
        let mut retry = self.connections.retry();
        loop {
            let stored = self
                .connections
                .change(
                    (namespace, name, &json),
                    |client, (namespace, name, json)| {
                        Box::pin(documents::put_new(client, namespace, name, json))
                    },
                )
                .await?;
            if let Some(stored) = stored {
                return Ok(stored);
            }
            if !retry.pause().await {
                return Err(StoreError::Unavailable(
                    "the document changes all the time".to_owned(),
                ));
            }
        }
    }

    async fn swap(
        &self,
        namespace: &str,
        name: &str,
        was: &Bytes,
        json: Bytes,
    ) -> Result<bool, StoreError> {
        self.connections
            .change_once(
                (namespace, name, was, json),
                |client, (namespace, name, was, json)| {
                    Box::pin(documents::swap(client, namespace, name, was, json))
                },
            )
            .await
    }

    async fn fetch(&self, namespace: &str, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.connections
            .read((namespace, name), |client, (namespace, name)| {
                Box::pin(documents::fetch(client, namespace, name))
            })
            .await
    }

    async fn remove(&self, namespace: &str, name: &str) -> Result<bool, StoreError> {
        self.connections
            .change_once((namespace, name), |client, (namespace, name)| {
                Box::pin(documents::remove(client, namespace, name))
            })
            .await
    }

    async fn all(&self, namespace: &str, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        self.connections
            .read((namespace, prefix), |client, (namespace, prefix)| {
                Box::pin(documents::all(client, namespace, prefix))
            })
            .await
    }
}
