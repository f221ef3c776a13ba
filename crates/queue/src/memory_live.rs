//! Live events in memory, shared by the parts of one process.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tidegate_core::leases::JobRef;
use tidegate_core::live::{Live, LiveBatch, LiveError, LivePosition, WakeReason};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

/// Live events in memory. They are never removed.
pub struct MemoryLive {
    jobs: Mutex<HashMap<JobRef, LiveBatch>>,
    subscribed: Mutex<HashSet<JobRef>>,
    wake: mpsc::UnboundedSender<(JobRef, WakeReason)>,
    wakes: AsyncMutex<mpsc::UnboundedReceiver<(JobRef, WakeReason)>>,
    stop: mpsc::UnboundedSender<JobRef>,
    stops: AsyncMutex<mpsc::UnboundedReceiver<JobRef>>,
}

impl Default for MemoryLive {
    fn default() -> Self {
        let ((wake, wakes), (stop, stops)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        Self {
            jobs: Mutex::default(),
            subscribed: Mutex::default(),
            wake,
            wakes: AsyncMutex::new(wakes),
            stop,
            stops: AsyncMutex::new(stops),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Live for MemoryLive {
    async fn publish(&self, job: &JobRef, batch: LiveBatch) -> Result<u64, LiveError> {
        let next = {
            let mut jobs = lock(&self.jobs);
            let known = jobs.entry(job.clone()).or_insert_with(|| LiveBatch {
                attempt: batch.attempt,
                offset: 0,
                events: Vec::new(),
            });
            if batch.attempt > known.attempt {
                known.attempt = batch.attempt;
                known.events.clear();
            }
            let next = known.events.len() as u64;
            if batch.attempt == known.attempt && batch.offset <= next {
                let known_already = usize::try_from(next - batch.offset).unwrap_or(usize::MAX);
                known
                    .events
                    .extend(batch.events.into_iter().skip(known_already));
            }
            known.events.len() as u64
        };
        self.wake(job, WakeReason::Events).await?;
        Ok(next)
    }

    async fn read(
        &self,
        job: &JobRef,
        after: LivePosition,
    ) -> Result<Option<LiveBatch>, LiveError> {
        let jobs = lock(&self.jobs);
        let Some(known) = jobs.get(job) else {
            return Ok(None);
        };
        let offset = if known.attempt == after.attempt {
            after.offset
        } else {
            0
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let events = known.events.get(from..).unwrap_or_default().to_vec();
        Ok((!events.is_empty()).then_some(LiveBatch {
            attempt: known.attempt,
            offset,
            events,
        }))
    }

    async fn wake(&self, job: &JobRef, reason: WakeReason) -> Result<(), LiveError> {
        if lock(&self.subscribed).contains(job) {
            self.wake.send((job.clone(), reason)).ok();
        }
        Ok(())
    }

    async fn subscribe(&self, job: &JobRef) -> Result<(), LiveError> {
        lock(&self.subscribed).insert(job.clone());
        Ok(())
    }

    async fn unsubscribe(&self, job: &JobRef) -> Result<(), LiveError> {
        lock(&self.subscribed).remove(job);
        Ok(())
    }

    async fn next_wake(&self) -> (JobRef, WakeReason) {
        let next = self.wakes.lock().await.recv().await;
        next.expect("the sender is not dropped")
    }

    async fn request_stop(&self, _holder: &str, job: &JobRef) -> Result<(), LiveError> {
        self.stop.send(job.clone()).ok();
        Ok(())
    }

    async fn stop_requested(&self, _holder: &str) -> JobRef {
        let next = self.stops.lock().await.recv().await;
        next.expect("the sender is not dropped")
    }
}
