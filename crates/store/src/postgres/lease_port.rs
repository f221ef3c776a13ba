//! Implements the port of leases in a cluster.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tidegate_core::leases::{
    AcquireRequest, AcquireResult, BegunAttempts, ClusterCounts, GrantedLease, HeartbeatResult,
    HeldLease, Holder, JobProgress, JobRef, LeaseHeartbeat, Leases,
};
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::record::JobRecord;
use tidegate_core::store::{Store, StoreError};

use super::acquire::{self, AcquireDecision, LeaseQuery};
use super::interim::{self, InterimMessage};
use super::port::OVERHEAD;
use super::writer::LockOrder;
use super::{PostgresStore, counts, heartbeat, progress, queue_epoch, reconcile};
use crate::cursor::NumberedRecord;

#[async_trait]
impl Leases for PostgresStore {
    async fn acquire(&self, request: AcquireRequest) -> Result<AcquireResult, StoreError> {
        let job = request.job.clone();
        let (decision, record) = self.decide(LeaseQuery::of_holder(request)).await?;
        let record = match (decision, record) {
            (_, Some(record)) => Some(record),
            (
                AcquireDecision::Granted(..)
                | AcquireDecision::CancelRequested
                | AcquireDecision::Overdue
                | AcquireDecision::Exhausted,
                None,
            ) => self.get(&job.account, &job.id).await?,
            (_, None) => None,
        };
        Ok(match (decision, record.map(Box::new)) {
            (AcquireDecision::Superseded, _) => AcquireResult::Superseded,
            (AcquireDecision::Unknown, _) => AcquireResult::Unknown,
            (AcquireDecision::Ended, _) => AcquireResult::Ended,
            (_, Some(record)) if record.completion.is_some() => AcquireResult::Ended,
            (AcquireDecision::Granted(fence, remaining), Some(record))
                if record.attempt == fence.attempt =>
            {
                AcquireResult::Granted(Box::new(GrantedLease {
                    record: *record,
                    fence,
                    remaining,
                }))
            }
            (AcquireDecision::CancelRequested, Some(record)) => {
                AcquireResult::CancelRequested(record)
            }
            (AcquireDecision::Overdue, Some(record)) => AcquireResult::Overdue(record),
            (AcquireDecision::Exhausted, Some(record)) => AcquireResult::Exhausted(record),
            // Another lease was granted since, or the job was deleted.
            (_, _) => AcquireResult::HeldByAnother,
        })
    }

    async fn heartbeat(&self, beat: LeaseHeartbeat) -> Result<HeartbeatResult, StoreError> {
        self.connections
            .change(beat, |client, beat| Box::pin(heartbeat::beat(client, beat)))
            .await
    }

    async fn release(&self, lease: &HeldLease) -> Result<bool, StoreError> {
        let order = LockOrder::Job(lease.job.account.clone(), lease.job.id.clone());
        self.writer
            .change(order, OVERHEAD, lease.clone(), |client, lease| {
                Box::pin(heartbeat::release(client, lease))
            })
            .await
    }

    async fn put_interim(
        &self,
        lease: &HeldLease,
        message: OutboxMessage,
    ) -> Result<bool, StoreError> {
        let order = LockOrder::Job(lease.job.account.clone(), lease.job.id.clone());
        let bytes = OVERHEAD + message.body.len();
        let interim = InterimMessage {
            lease: lease.clone(),
            message,
        };
        self.writer
            .change(order, bytes, interim, |client, interim| {
                Box::pin(interim::put(client, interim))
            })
            .await
    }

    async fn holder_of(&self, job: &JobRef) -> Result<Option<Holder>, StoreError> {
        self.connections
            .read(job, |client, job| {
                Box::pin(heartbeat::holder_of(client, job))
            })
            .await
    }

    async fn retire(&self, holder: &Holder) -> Result<(), StoreError> {
        self.connections
            .change(holder, |client, holder| {
                Box::pin(heartbeat::retire(client, holder))
            })
            .await
    }

    async fn expired(&self, lasts: Duration, limit: usize) -> Result<Vec<JobRecord>, StoreError> {
        let numbers = self
            .connections
            .change((lasts, limit), |client, (lasts, limit)| {
                Box::pin(async move {
                    reconcile::move_pulse(client, *lasts).await?;
                    reconcile::expire(client, *limit).await
                })
            })
            .await?;
        self.open_records(numbers).await
    }

    async fn progress(&self, jobs: &[JobRef]) -> Result<Vec<JobProgress>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        self.connections
            .read(jobs, |client, jobs| {
                Box::pin(progress::of_jobs(client, jobs))
            })
            .await
    }

    async fn begun(
        &self,
        model: &str,
        since: Option<Timestamp>,
    ) -> Result<BegunAttempts, StoreError> {
        self.connections
            .read((model, since), |client, (model, since)| {
                Box::pin(progress::of_begun(client, model, *since))
            })
            .await
    }

    async fn mark_queued(&self, jobs: &[JobRef], epoch: &str) -> Result<(), StoreError> {
        if jobs.is_empty() {
            return Ok(());
        }
        self.connections
            .change((jobs, epoch), |client, (jobs, epoch)| {
                Box::pin(reconcile::mark_queued(client, jobs, epoch))
            })
            .await
    }

    async fn mark_all_unqueued(&self, epoch: &str) -> Result<bool, StoreError> {
        self.connections
            .change(epoch, |client, epoch| {
                Box::pin(queue_epoch::begin(client, epoch))
            })
            .await?;
        let mut after = Some(0);
        while let Some(number) = after {
            after = self
                .connections
                .change(number, |client, number| {
                    Box::pin(reconcile::mark_unqueued_after(client, *number))
                })
                .await?;
        }
        self.connections
            .change(epoch, |client, epoch| {
                Box::pin(queue_epoch::complete(client, epoch))
            })
            .await
    }

    async fn queue_epoch(&self) -> Result<Option<String>, StoreError> {
        self.connections
            .read((), |client, ()| Box::pin(queue_epoch::completed(client)))
            .await
    }

    async fn unmark_queued(&self, age: Duration, limit: usize) -> Result<usize, StoreError> {
        self.connections
            .change((age, limit), |client, (age, limit)| {
                Box::pin(reconcile::unmark_queued(client, *age, *limit))
            })
            .await
    }

    async fn claim_unqueued(
        &self,
        age: Duration,
        limit: usize,
    ) -> Result<Vec<JobRecord>, StoreError> {
        let numbers = self
            .connections
            .change((age, limit), |client, (age, limit)| {
                Box::pin(reconcile::claim_unqueued(client, *age, *limit))
            })
            .await?;
        self.open_records(numbers).await
    }

    async fn counts(&self) -> Result<ClusterCounts, StoreError> {
        self.connections
            .read((), |client, ()| Box::pin(counts::counts(client)))
            .await
    }
}

impl PostgresStore {
    async fn open_records(&self, numbers: Vec<i64>) -> Result<Vec<JobRecord>, StoreError> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let found = self
            .connections
            .read(numbers, |client, numbers| {
                Box::pin(reconcile::open_records(client, numbers))
            })
            .await?;
        Ok(records(found))
    }

    async fn decide(
        &self,
        mut query: LeaseQuery,
    ) -> Result<(AcquireDecision, Option<JobRecord>), StoreError> {
        let mut retry = self.connections.retry();
        loop {
            let job = &query.request.job;
            let order = LockOrder::Job(job.account.clone(), job.id.clone());
            let decision = self
                .writer
                .change_in_one_step(order, OVERHEAD, query.clone(), |client, query| {
                    Box::pin(acquire::grant(client, query))
                })
                .await?;
            match decision.0 {
                AcquireDecision::HolderNeeded => {
                    if !self.keep_alive(&query.request).await? {
                        return Ok((AcquireDecision::Superseded, None));
                    }
                    query = query.of_fresh_holder();
                }
                AcquireDecision::Changed if retry.pause().await => {}
                AcquireDecision::Changed => {
                    return Err(StoreError::Unavailable(
                        "the job changes all the time".to_owned(),
                    ));
                }
                _ => return Ok(decision),
            }
        }
    }

    async fn keep_alive(&self, request: &AcquireRequest) -> Result<bool, StoreError> {
        self.connections
            .change(request, |client, request| {
                Box::pin(heartbeat::keep_alive(
                    client,
                    &request.holder,
                    request.lasts,
                ))
            })
            .await
    }
}

fn records(found: Vec<NumberedRecord>) -> Vec<JobRecord> {
    found.into_iter().map(|(_, record)| record).collect()
}
