//! The API processes of a cluster, for operators: each stores a document that says when it last lived.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{chain, clock};

/// The documents of the processes, by the name of the process.
const NAMESPACE: &str = "api-processes";
/// The pause between two reports of a process.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long the removal of a report may take.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// A process that has not reported for this long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The API processes of a cluster, as one of them sees them.
pub struct ApiReplicas {
    documents: Arc<dyn Documents>,
    /// The name of this process.
    own: String,
    seen: Mutex<Vec<SeenReplica>>,
}

/// An API process, as of its last report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenReplica {
    /// Its name.
    pub name: String,
    /// When it reported.
    pub last_seen: Timestamp,
}

/// The document of a process.
#[derive(Serialize, Deserialize)]
struct ReplicaReport {
    at: Timestamp,
}

impl ApiReplicas {
    /// The process with this name among those that share these documents.
    pub fn new(documents: Arc<dyn Documents>, own: String) -> Self {
        Self {
            documents,
            own,
            seen: Mutex::default(),
        }
    }

    /// Reports that this process lives, and reads the reports of the others, forever.
    pub async fn run(&self) {
        loop {
            if let Err(error) = self.round().await {
                tracing::debug!(error = %chain(&error), "failed to list the API processes");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Removes the report of this process, which ends.
    pub async fn leave(&self) {
        let remove = self.documents.remove(NAMESPACE, &self.own);
        // The others forget the process a minute later in any case.
        tokio::time::timeout(LEAVE_TIMEOUT, remove).await.ok();
    }

    /// The processes, by name.
    pub fn seen(&self) -> Vec<SeenReplica> {
        self.lock().clone()
    }

    async fn round(&self) -> Result<(), StoreError> {
        let now = clock::now();
        let report = serde_json::to_vec(&ReplicaReport { at: now }).unwrap_or_default();
        let report = Bytes::from(report);
        self.documents.put(NAMESPACE, &self.own, report).await?;
        let mut seen = Vec::new();
        for (name, json) in self.documents.all(NAMESPACE, "").await? {
            let report = serde_json::from_slice::<ReplicaReport>(&json).ok();
            let age = report.as_ref().map(|report| now.duration_since(report.at));
            let is_old = |age: jiff::SignedDuration| age.as_secs_f64() > FORGET_AFTER.as_secs_f64();
            match report {
                Some(report) if !age.is_some_and(is_old) => seen.push(SeenReplica {
                    name,
                    last_seen: report.at,
                }),
                Some(_) | None => {
                    self.documents.remove(NAMESPACE, &name).await?;
                }
            }
        }
        *self.lock() = seen;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SeenReplica>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
