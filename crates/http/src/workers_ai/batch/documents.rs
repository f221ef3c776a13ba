//! The documents of batches in the store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Account, Refusal, chain};
use tokio::time::Instant;

use super::WorkersAiBatch;
use crate::workers_ai::error::WorkersAiError;

const NAMESPACE: &str = "workers-ai-batches";
/// How long the document of a batch is kept. Its results are kept as long as other jobs.
const KEEP: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How often expired documents are removed, which reads all of them. Clients do not see them before that.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The batches of all accounts.
pub(crate) struct WorkersAiBatches {
    documents: Arc<dyn Documents>,
    last_sweep: Mutex<Option<Instant>>,
}

impl WorkersAiBatches {
    pub(crate) fn new(documents: Arc<dyn Documents>) -> Self {
        Self {
            documents,
            last_sweep: Mutex::default(),
        }
    }

    /// A batch that has not expired.
    pub(super) async fn get(
        &self,
        account: &Account,
        id: &str,
    ) -> Result<Option<WorkersAiBatch>, WorkersAiError> {
        let found = self.documents.fetch(NAMESPACE, &key(account, id)).await;
        let Some(json) = found.map_err(store_error)? else {
            return Ok(None);
        };
        let batch: WorkersAiBatch = serde_json::from_slice(&json)
            .map_err(|error| store_error(StoreError::Corrupt(format!("batch `{id}`: {error}"))))?;
        Ok(Some(batch).filter(|batch| !is_expired(batch)))
    }

    pub(super) async fn put(
        &self,
        account: &Account,
        id: &str,
        batch: &WorkersAiBatch,
    ) -> Result<(), WorkersAiError> {
        let json = serde_json::to_vec(batch).expect("batches have string keys");
        let key = key(account, id);
        let stored = self.documents.put_new(NAMESPACE, &key, json.into()).await;
        stored.map(|_| ()).map_err(store_error)
    }

    pub(super) async fn remove(&self, account: &Account, id: &str) -> Result<(), WorkersAiError> {
        let removed = self.documents.remove(NAMESPACE, &key(account, id)).await;
        removed.map(|_| ()).map_err(store_error)
    }

    /// Removes expired batches, unless that was done a short time ago.
    pub(super) async fn sweep_if_due(&self) {
        if !self.begin_sweep() {
            return;
        }
        if let Err(error) = self.sweep().await {
            tracing::warn!(error = %chain(&error), "failed to remove expired batches");
        }
    }

    /// Whether a sweep is due, which the caller does then.
    fn begin_sweep(&self) -> bool {
        let mut last = self
            .last_sweep
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if last.is_some_and(|last| last.elapsed() < SWEEP_INTERVAL) {
            return false;
        }
        *last = Some(Instant::now());
        true
    }

    async fn sweep(&self) -> Result<(), StoreError> {
        for (name, json) in self.documents.all(NAMESPACE, "").await? {
            let batch = serde_json::from_slice::<WorkersAiBatch>(&json);
            if batch.is_ok_and(|batch| is_expired(&batch)) {
                self.documents.remove(NAMESPACE, &name).await?;
            }
        }
        Ok(())
    }
}

fn is_expired(batch: &WorkersAiBatch) -> bool {
    Timestamp::now().duration_since(batch.created_at) > KEEP
}

fn key(account: &Account, id: &str) -> String {
    // No account can have this name.
    let account = if account.is_anonymous() {
        "~"
    } else {
        account.as_str()
    };
    format!("{account}/{id}")
}

fn store_error(error: StoreError) -> WorkersAiError {
    tracing::error!(error = %chain(&error), "failed to use store");
    WorkersAiError::from(Refusal::StoreUnavailable)
}

#[cfg(test)]
mod tests {
    use tidegate_store::MemoryDocuments;

    use super::*;

    fn batch(age: SignedDuration) -> WorkersAiBatch {
        WorkersAiBatch {
            model: "local/m".to_owned(),
            created_at: Timestamp::now() - age,
            items: Vec::new(),
        }
    }

    async fn stored_names(documents: &MemoryDocuments) -> Vec<String> {
        let all = documents.all(NAMESPACE, "").await.unwrap();
        all.into_iter().map(|(name, _)| name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn expired_batches_are_hidden_and_removed_by_the_next_sweep() {
        let (memory, ann) = (Arc::new(MemoryDocuments::default()), Account::ANONYMOUS);
        let batches = WorkersAiBatches::new(memory.clone());
        let old = batch(KEEP + SignedDuration::from_secs(1));
        batches.put(&ann, "old", &old).await.unwrap();
        batches
            .put(&ann, "new", &batch(SignedDuration::ZERO))
            .await
            .unwrap();
        assert!(batches.get(&ann, "old").await.unwrap().is_none());
        assert!(batches.get(&ann, "new").await.unwrap().is_some());

        batches.sweep_if_due().await;
        assert_eq!(stored_names(&memory).await, ["~/new"]);

        batches.put(&ann, "old", &old).await.unwrap();
        batches.sweep_if_due().await;
        assert_eq!(stored_names(&memory).await.len(), 2, "no sweep is due");
        tokio::time::advance(SWEEP_INTERVAL).await;
        batches.sweep_if_due().await;
        assert_eq!(stored_names(&memory).await, ["~/new"]);
    }
}
