//! The ports of the store, over a connection that takes time and fails. What a cluster does not call is not
//! simulated: it fails as invalid.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use tidegate_core::job_attempt::JobAttempt;
use tidegate_core::lease::{LeaseRequest, LeaseResult};
use tidegate_core::leases::{
    AcquireRequest, AcquireResult, BegunAttempts, ClusterCounts, HeartbeatResult, HeldLease,
    Holder, JobProgress, JobRef, LeaseHeartbeat, Leases,
};
use tidegate_core::outbox::{
    MessageFilter, MessageSummary, OutboxCounts, OutboxMessage, Reopened, SendOutcome, TakeRequest,
    TakenMessages,
};
use tidegate_core::record::{JobRecord, JobSpec, JobSummary};
use tidegate_core::store::{
    CancelRequestResult, Documents, FinishOutcome, Inserted, JobFilter, JobFinish, JobQuery,
    JobRecords, OpenJob, Page, Store, StoreError,
};
use tidegate_core::{Account, JobId};

use super::{StoreClient, StoreServer};
use crate::planted_bug::PlantedBug;

impl StoreClient {
    async fn call<T>(&self, operation: impl FnOnce(&StoreServer) -> T) -> Result<T, StoreError> {
        let called = self.link.call(|| operation(&self.server)).await;
        called.map_err(|_| StoreError::Unavailable("no reply of the simulated store".to_owned()))
    }
}

fn not_simulated<T>(operation: &str) -> Result<T, StoreError> {
    Err(StoreError::Invalid(format!("{operation} is not simulated")))
}

#[async_trait]
impl JobRecords for StoreClient {
    async fn lease(&self, request: LeaseRequest) -> Result<LeaseResult, StoreError> {
        self.call(|server| server.lease(&request)).await
    }

    async fn finish(&self, finish: JobFinish) -> Result<FinishOutcome, StoreError> {
        self.call(|server| server.finish(finish)).await?
    }
}

#[async_trait]
impl Store for StoreClient {
    async fn insert(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.call(|server| server.insert(spec, None)).await
    }

    async fn replace(&self, spec: JobSpec) -> Result<Inserted, StoreError> {
        self.call(|server| server.replace(spec)).await
    }

    async fn insert_leased(
        &self,
        spec: JobSpec,
        lease: LeaseRequest,
    ) -> Result<Inserted, StoreError> {
        self.call(|server| server.insert(spec, Some(lease))).await
    }

    async fn request_cancel(
        &self,
        account: &Account,
        id: &JobId,
    ) -> Result<CancelRequestResult, StoreError> {
        self.call(|server| server.request_cancel(account, id)).await
    }

    async fn get(&self, account: &Account, id: &JobId) -> Result<Option<JobRecord>, StoreError> {
        self.call(|server| server.get(account, id)).await
    }

    async fn attempts(
        &self,
        _account: &Account,
        _id: &JobId,
    ) -> Result<Vec<JobAttempt>, StoreError> {
        not_simulated("a list of attempts")
    }

    async fn list(&self, _query: JobQuery) -> Result<Page<JobRecord>, StoreError> {
        not_simulated("a list of jobs")
    }

    async fn recent(&self, _filter: JobFilter) -> Result<Vec<JobSummary>, StoreError> {
        not_simulated("a list of recent jobs")
    }

    async fn open(&self, _after: u64, _limit: usize) -> Result<Vec<OpenJob>, StoreError> {
        not_simulated("a list of open jobs")
    }

    async fn remove_data(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        let before = over_before.as_microsecond();
        self.call(|server| server.remove_data(before, limit)).await
    }

    async fn forget(&self, over_before: Timestamp, limit: usize) -> Result<usize, StoreError> {
        let before = over_before.as_microsecond();
        self.call(|server| server.forget(before, limit)).await
    }

    async fn take_messages(&self, request: TakeRequest) -> Result<TakenMessages, StoreError> {
        self.call(|server| {
            let now = server.clock.micros();
            let mut taken = server.lock().outbox.take(&request, now);
            if server.has(PlantedBug::NewMessageId) {
                for message in &mut taken.messages {
                    message.id = format!("{}-{}", message.id, message.attempts);
                }
            }
            taken
        })
        .await
    }

    async fn record_attempt(
        &self,
        id: &str,
        holder: &str,
        outcome: SendOutcome,
    ) -> Result<(), StoreError> {
        self.call(|server| {
            let now = server.clock.micros();
            let id = match server.has(PlantedBug::NewMessageId) {
                true => id.split_once('-').map_or(id, |(first, _)| first),
                false => id,
            };
            let mut state = server.lock();
            state.outbox.record_attempt(id, holder, &outcome, now);
        })
        .await
    }

    async fn release_message(&self, id: &str, holder: &str) -> Result<(), StoreError> {
        self.call(|server| {
            let now = server.clock.micros();
            server.lock().outbox.release(id, holder, now);
        })
        .await
    }

    async fn messages(&self, filter: MessageFilter) -> Result<Vec<MessageSummary>, StoreError> {
        self.call(|server| server.lock().outbox.list(&filter)).await
    }

    async fn outbox_counts(&self) -> Result<OutboxCounts, StoreError> {
        self.call(|server| {
            let (pending, retrying) = server.lock().outbox.counts();
            OutboxCounts { pending, retrying }
        })
        .await
    }

    async fn reopen_message(
        &self,
        _id: &str,
        _account: Option<Account>,
        _window: Duration,
    ) -> Result<Reopened, StoreError> {
        not_simulated("sending a message again")
    }
}

#[async_trait]
impl Leases for StoreClient {
    async fn acquire(&self, request: AcquireRequest) -> Result<AcquireResult, StoreError> {
        self.call(|server| server.acquire(&request)).await
    }

    async fn heartbeat(&self, beat: LeaseHeartbeat) -> Result<HeartbeatResult, StoreError> {
        self.call(|server| server.heartbeat(&beat)).await
    }

    async fn holder_of(&self, job: &JobRef) -> Result<Option<Holder>, StoreError> {
        self.call(|server| server.holder_of(job)).await
    }

    async fn release(&self, lease: &HeldLease) -> Result<bool, StoreError> {
        self.call(|server| server.release(lease)).await
    }

    async fn put_interim(
        &self,
        lease: &HeldLease,
        message: OutboxMessage,
    ) -> Result<bool, StoreError> {
        self.call(|server| server.put_interim(lease, message)).await
    }

    async fn retire(&self, holder: &Holder) -> Result<(), StoreError> {
        self.call(|server| server.retire(holder)).await
    }

    async fn expired(&self, lasts: Duration, limit: usize) -> Result<Vec<JobRecord>, StoreError> {
        self.call(|server| server.expired(lasts, limit)).await
    }

    async fn counts(&self) -> Result<ClusterCounts, StoreError> {
        self.call(StoreServer::counts).await
    }

    async fn progress(&self, jobs: &[JobRef]) -> Result<Vec<JobProgress>, StoreError> {
        self.call(|server| server.progress(jobs)).await
    }

    async fn begun(
        &self,
        model: &str,
        since: Option<Timestamp>,
    ) -> Result<BegunAttempts, StoreError> {
        self.call(|server| server.begun(model, since)).await
    }

    async fn mark_queued(&self, jobs: &[JobRef], epoch: &str) -> Result<(), StoreError> {
        self.call(|server| server.mark_queued(jobs, epoch)).await
    }

    async fn mark_all_unqueued(&self, epoch: &str) -> Result<bool, StoreError> {
        self.call(|server| server.mark_all_unqueued(epoch)).await?;
        Ok(true)
    }

    async fn queue_epoch(&self) -> Result<Option<String>, StoreError> {
        self.call(StoreServer::queue_epoch).await
    }

    async fn unmark_queued(&self, age: Duration, limit: usize) -> Result<usize, StoreError> {
        self.call(|server| server.unmark_queued(age, limit)).await
    }

    async fn claim_unqueued(
        &self,
        age: Duration,
        limit: usize,
    ) -> Result<Vec<JobRecord>, StoreError> {
        self.call(|server| server.claim_unqueued(age, limit)).await
    }
}

fn document_key(namespace: &str, name: &str) -> (String, String) {
    (namespace.to_owned(), name.to_owned())
}

#[async_trait]
impl Documents for StoreClient {
    async fn put(&self, namespace: &str, name: &str, json: Bytes) -> Result<(), StoreError> {
        self.call(|server| {
            let mut state = server.lock();
            state.documents.insert(document_key(namespace, name), json);
        })
        .await
    }

    async fn put_new(&self, namespace: &str, name: &str, json: Bytes) -> Result<Bytes, StoreError> {
        self.call(|server| {
            let mut state = server.lock();
            let stored = state.documents.entry(document_key(namespace, name));
            stored.or_insert(json).clone()
        })
        .await
    }

    async fn swap(
        &self,
        namespace: &str,
        name: &str,
        expected: &Bytes,
        json: Bytes,
    ) -> Result<bool, StoreError> {
        self.call(|server| {
            let mut state = server.lock();
            match state.documents.get_mut(&document_key(namespace, name)) {
                Some(stored) if stored == expected => {
                    *stored = json;
                    true
                }
                Some(_) | None => false,
            }
        })
        .await
    }

    async fn fetch(&self, namespace: &str, name: &str) -> Result<Option<Bytes>, StoreError> {
        self.call(|server| {
            let state = server.lock();
            state.documents.get(&document_key(namespace, name)).cloned()
        })
        .await
    }

    async fn remove(&self, namespace: &str, name: &str) -> Result<bool, StoreError> {
        self.call(|server| {
            let mut state = server.lock();
            state
                .documents
                .remove(&document_key(namespace, name))
                .is_some()
        })
        .await
    }

    async fn all(&self, namespace: &str, prefix: &str) -> Result<Vec<(String, Bytes)>, StoreError> {
        self.call(|server| {
            let state = server.lock();
            let found = state
                .documents
                .iter()
                .filter(|((space, name), _)| space == namespace && name.starts_with(prefix));
            found
                .map(|((_, name), json)| (name.clone(), json.clone()))
                .collect()
        })
        .await
    }
}
