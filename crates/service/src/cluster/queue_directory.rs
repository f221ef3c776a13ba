//! [`QueueDirectory`]: which queue a job of a cluster waits in, and which queues a director reads.
//!
//! A prediction waits in the queue of its version; one that was created through a deployment in the queue
//! of that deployment and version; the call of a procedure in the queue of the procedure; the job of a trained
//! version in the queue of the version whose code it runs. Directors cannot
//! know the deployments, so the queues of deployments are documents in the store: one is recorded before a
//! message is pushed to it, and every API process assigns it to the directors of its version.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_core::director_api::{AssignedQueue, DirectorJobKind, ModelOffer};
use tidegate_core::queue::{Queue, QueueKind, QueueName};
use tidegate_core::record::Target;
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{JobKind, chain, clock};

/// The namespace of the documents; their names are those of the queues.
const NAMESPACE: &str = "deployment_queues";
/// How often the documents are read: another process may have recorded a queue.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// A queue that is in use is recorded again after this time.
const RENEW_AFTER: Duration = Duration::from_secs(60 * 60);
/// An empty queue that was not used for this long is forgotten. Longer than [`RENEW_AFTER`] and the
/// differences of clocks.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The queues of a cluster.
pub struct QueueDirectory {
    documents: Arc<dyn Documents>,
    state: Mutex<DirectoryState>,
}

#[derive(Default)]
struct DirectoryState {
    /// The queues of deployments.
    deployments: BTreeMap<QueueName, DeploymentQueue>,
    /// The versions whose predictions are calls of a procedure.
    procedures: HashSet<String>,
    /// The version whose code runs the jobs of a trained version, by each id that the trained version has or
    /// had. Removed versions stay: a request may be about to queue a job.
    trained: HashMap<String, Target>,
    /// The models that trained versions run the code of.
    trained_sources: HashSet<String>,
}

/// The queue of a deployment and version, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct DeploymentQueue {
    model: String,
    version: String,
    deployment: String,
    /// When a message was last about to be pushed, give or take [`RENEW_AFTER`].
    used_at: Timestamp,
}

impl DeploymentQueue {
    fn is_older_than(&self, age: Duration, now: Timestamp) -> bool {
        let since = now.duration_since(self.used_at);
        Duration::try_from(since).is_ok_and(|since| since > age)
    }
}

impl QueueDirectory {
    /// The queues that these documents record.
    pub fn new(documents: Arc<dyn Documents>) -> Self {
        Self {
            documents,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, DirectoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The predictions of this version are calls of a procedure.
    pub(super) fn add_procedure(&self, version: &str) {
        self.lock().procedures.insert(version.to_owned());
    }

    /// The version `source` runs the jobs of the trained version with these ids, the current one first. Returns
    /// whether jobs of it may wait in another queue.
    pub(super) fn add_trained(&self, ids: &[String], source: &Target) -> bool {
        let mut state = self.lock();
        state.trained_sources.insert(source.model.clone());
        let mut may_have_moved = false;
        for (position, id) in ids.iter().enumerate() {
            let before = state.trained.insert(id.clone(), source.clone());
            may_have_moved |= match before {
                Some(before) => before != *source,
                None => position > 0,
            };
        }
        may_have_moved
    }

    /// The queue of a job.
    pub(super) fn queue_of(&self, kind: JobKind, target: &Target) -> QueueName {
        if let Some(source) = self.lock().trained.get(&target.version) {
            return QueueName::of_trained(kind, source);
        }
        let is_procedure = self.lock().procedures.contains(&target.version);
        match kind {
            JobKind::Prediction if is_procedure => QueueName::of_procedure(target),
            JobKind::Prediction | JobKind::Training => QueueName::of(kind, target),
        }
    }

    /// The queue of a job that is about to be pushed. The queue of a deployment is recorded first, so that
    /// directors read it.
    pub(super) async fn open(
        &self,
        kind: JobKind,
        target: &Target,
    ) -> Result<QueueName, StoreError> {
        let name = self.queue_of(kind, target);
        let (Some(QueueKind::DeploymentPrediction), Some(named)) =
            (name.kind(), &target.deployment)
        else {
            return Ok(name);
        };
        let now = clock::now();
        let known = self.lock().deployments.get(&name).cloned();
        if known.is_some_and(|queue| !queue.is_older_than(RENEW_AFTER, now)) {
            return Ok(name);
        }
        let queue = DeploymentQueue {
            model: target.model.clone(),
            version: target.version.clone(),
            deployment: named.deployment.clone(),
            used_at: now,
        };
        self.documents
            .put(NAMESPACE, name.as_str(), queue.to_json())
            .await?;
        self.lock().deployments.insert(name.clone(), queue);
        Ok(name)
    }

    /// The queues that a director reads with one of its models.
    pub(super) fn assigned(&self, offer: &ModelOffer, kind: DirectorJobKind) -> Vec<AssignedQueue> {
        let target = Target {
            model: offer.model.clone(),
            version: offer.version.clone(),
            deployment: None,
        };
        let mut names = match kind {
            DirectorJobKind::Training => vec![QueueName::of(JobKind::Training, &target)],
            DirectorJobKind::Prediction => vec![QueueName::of(JobKind::Prediction, &target)],
            DirectorJobKind::Procedure => vec![QueueName::of_procedure(&target)],
        };
        if kind == DirectorJobKind::Prediction {
            let state = self.lock();
            let own = state.deployments.iter().filter(|(_, queue)| {
                queue.version == target.version && queue.model == target.model
            });
            names.extend(own.map(|(name, _)| name.clone()));
        }
        let assign = |name: QueueName| AssignedQueue {
            name: name.to_string(),
            version: offer.version.clone(),
        };
        names.into_iter().map(assign).collect()
    }

    /// The queue of the trained versions that run the code of one of the models of a director, if there are any.
    pub(super) fn assigned_trained(
        &self,
        offer: &ModelOffer,
        kind: DirectorJobKind,
    ) -> Option<AssignedQueue> {
        let kind = match kind {
            DirectorJobKind::Prediction => JobKind::Prediction,
            DirectorJobKind::Training => JobKind::Training,
            DirectorJobKind::Procedure => return None,
        };
        if !self.lock().trained_sources.contains(&offer.model) {
            return None;
        }
        let source = Target {
            model: offer.model.clone(),
            version: offer.version.clone(),
            deployment: None,
        };
        Some(AssignedQueue {
            name: QueueName::of_trained(kind, &source).to_string(),
            version: source.version,
        })
    }

    /// The model of the queue of a deployment.
    pub(super) fn model_of(&self, name: &QueueName) -> Option<String> {
        let state = self.lock();
        state.deployments.get(name).map(|queue| queue.model.clone())
    }

    /// Keeps the queues up to date, forever.
    pub async fn run(&self, queue: &dyn Queue) {
        loop {
            if let Err(error) = self.refresh(queue).await {
                tracing::debug!(error = %chain(&error), "failed to read the queues of deployments, retrying");
            }
            tokio::time::sleep(REFRESH_INTERVAL).await;
        }
    }

    /// Reads the queues that other processes have recorded; forgets those that were not used for long.
    pub async fn refresh(&self, queue: &dyn Queue) -> Result<(), StoreError> {
        let now = clock::now();
        let mut stored = BTreeMap::new();
        for (name, json) in self.documents.all(NAMESPACE, "").await? {
            let name = QueueName::new(&name);
            match serde_json::from_slice::<DeploymentQueue>(&json) {
                Ok(found)
                    if found.is_older_than(FORGET_AFTER, now) && is_empty(queue, &name).await =>
                {
                    self.documents.remove(NAMESPACE, name.as_str()).await?;
                }
                Ok(found) => {
                    stored.insert(name, found);
                }
                Err(error) => {
                    tracing::error!(queue = %name, error = %chain(&error), "failed to read the queue of a deployment");
                }
            }
        }
        // Another process may have removed a queue while this one was about to use it.
        let missing: Vec<(QueueName, DeploymentQueue)> = {
            let state = self.lock();
            let known = state.deployments.iter();
            known
                .filter(|(name, queue)| {
                    !stored.contains_key(*name) && !queue.is_older_than(RENEW_AFTER, now)
                })
                .map(|(name, queue)| (name.clone(), queue.clone()))
                .collect()
        };
        for (name, queue) in missing {
            self.documents
                .put_new(NAMESPACE, name.as_str(), queue.to_json())
                .await?;
            stored.insert(name, queue);
        }
        self.lock().deployments = stored;
        Ok(())
    }
}

impl DeploymentQueue {
    fn to_json(&self) -> Bytes {
        Bytes::from(serde_json::to_vec(self).expect("a queue serializes"))
    }
}

/// Whether a queue has no entries. One that cannot be read may have some.
async fn is_empty(queue: &dyn Queue, name: &QueueName) -> bool {
    let depth = queue.depth(name).await;
    depth.is_ok_and(|depth| depth.waiting + depth.claimed == 0)
}

#[cfg(test)]
mod tests {
    use tidegate_core::record::DeploymentRef;
    use tidegate_queue::MemoryQueue;
    use tidegate_store::MemoryDocuments;

    use super::*;

    fn target(deployment: Option<&str>) -> Target {
        Target {
            model: "ann/hello".to_owned(),
            version: "ab".repeat(32),
            deployment: deployment.map(|name| DeploymentRef {
                deployment: name.to_owned(),
                release: Some(1),
            }),
        }
    }

    fn assigned(directory: &QueueDirectory, version: &str, kind: DirectorJobKind) -> Vec<String> {
        let offer = ModelOffer {
            model: "ann/hello".to_owned(),
            version: version.to_owned(),
            schema_hash: None,
            slots: 1,
        };
        let queues = directory.assigned(&offer, kind);
        queues.into_iter().map(|queue| queue.name).collect()
    }

    #[tokio::test]
    async fn every_process_assigns_the_queue_of_a_deployment_to_the_directors_of_its_version() {
        let documents: Arc<dyn Documents> = Arc::new(MemoryDocuments::default());
        let [one, two] = [(); 2].map(|()| QueueDirectory::new(Arc::clone(&documents)));
        let deployed = target(Some("ann/d"));
        let name = one.open(JobKind::Prediction, &deployed).await.unwrap();
        assert_eq!(name.kind(), Some(QueueKind::DeploymentPrediction));
        let queue = MemoryQueue::default();
        two.refresh(&queue).await.unwrap();
        let own = QueueName::of(JobKind::Prediction, &target(None)).to_string();
        let both = vec![own, name.to_string()];
        for directory in [&one, &two] {
            let version = &deployed.version;
            let queues = assigned(directory, version, DirectorJobKind::Prediction);
            assert_eq!(queues, both);
            let of_trainings = assigned(directory, version, DirectorJobKind::Training);
            assert!(of_trainings[0].starts_with("input:training:vt-"));
            assert_eq!(of_trainings.len(), 1);
            let other = assigned(directory, &"cd".repeat(32), DirectorJobKind::Prediction);
            assert_eq!(
                other.len(),
                1,
                "directors of another version do not read it"
            );
        }
        assert_eq!(two.model_of(&name).as_deref(), Some("ann/hello"));
    }

    #[tokio::test]
    async fn an_unused_queue_is_forgotten_only_when_it_is_empty() {
        let documents: Arc<dyn Documents> = Arc::new(MemoryDocuments::default());
        let queue = MemoryQueue::default();
        let deployed = target(Some("ann/d"));
        let name = QueueName::of(JobKind::Prediction, &deployed);
        let old = DeploymentQueue {
            model: deployed.model.clone(),
            version: deployed.version.clone(),
            deployment: "ann/d".to_owned(),
            used_at: Timestamp::now() - FORGET_AFTER * 2,
        };
        let put = documents.put(NAMESPACE, name.as_str(), old.to_json());
        put.await.unwrap();
        let entry = tidegate_core::queue::QueueEntry {
            account: tidegate_core::Account::shared(),
            id: tidegate_core::JobId::parse("a").unwrap(),
            priority: Default::default(),
            deadline: None,
            details: None,
        };
        queue.push(&name, entry.clone()).await.unwrap();
        let directory = QueueDirectory::new(Arc::clone(&documents));
        directory.refresh(&queue).await.unwrap();
        assert!(directory.model_of(&name).is_some(), "a job waits in it");
        queue
            .remove(&name, &entry.account, &entry.id)
            .await
            .unwrap();
        directory.refresh(&queue).await.unwrap();
        assert_eq!(directory.model_of(&name), None);
        assert_eq!(documents.all(NAMESPACE, "").await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_queue_in_use_that_another_process_forgot_is_recorded_again() {
        let documents: Arc<dyn Documents> = Arc::new(MemoryDocuments::default());
        let directory = QueueDirectory::new(Arc::clone(&documents));
        let deployed = target(Some("ann/d"));
        let name = directory
            .open(JobKind::Prediction, &deployed)
            .await
            .unwrap();
        documents.remove(NAMESPACE, name.as_str()).await.unwrap();
        directory.refresh(&MemoryQueue::default()).await.unwrap();
        assert_eq!(documents.all(NAMESPACE, "").await.unwrap().len(), 1);
        assert!(directory.model_of(&name).is_some());
    }

    #[tokio::test]
    async fn directors_read_the_queue_of_the_trained_versions_of_their_version() {
        let directory = QueueDirectory::new(Arc::new(MemoryDocuments::default()));
        let source = target(None);
        let offer = |model: &str, version: &str| ModelOffer {
            model: model.to_owned(),
            version: version.to_owned(),
            schema_hash: None,
            slots: 1,
        };
        let own = offer(&source.model, &source.version);
        assert_eq!(
            directory.assigned_trained(&own, DirectorJobKind::Prediction),
            None
        );
        let ids = ["t2".to_owned(), "t1".to_owned()];
        assert!(directory.add_trained(&ids, &source), "jobs of t1 may wait");
        assert!(!directory.add_trained(&ids, &source));
        for deployment in [None, Some("ann/d")] {
            let trained = Target {
                model: "ann/mine".to_owned(),
                version: "t1".to_owned(),
                deployment: target(deployment).deployment,
            };
            for (kind, of_director) in [
                (JobKind::Prediction, DirectorJobKind::Prediction),
                (JobKind::Training, DirectorJobKind::Training),
            ] {
                let name = directory.open(kind, &trained).await.unwrap();
                let assigned = directory.assigned_trained(&own, of_director).unwrap();
                assert_eq!(assigned.name, name.to_string());
                assert_eq!(assigned.version, source.version);
            }
        }
        let other = offer("ann/other", &source.version);
        assert_eq!(
            directory.assigned_trained(&other, DirectorJobKind::Prediction),
            None,
            "directors of another model do not read it"
        );
        let moved = Target {
            version: "cd".repeat(32),
            ..source.clone()
        };
        assert!(directory.add_trained(&["t3".to_owned(), "t2".to_owned()], &moved));
    }

    #[tokio::test]
    async fn predictions_of_a_procedure_have_a_queue_of_their_own() {
        let directory = QueueDirectory::new(Arc::new(MemoryDocuments::default()));
        let target = target(None);
        directory.add_procedure(&target.version);
        let name = directory.open(JobKind::Prediction, &target).await.unwrap();
        assert_eq!(name.kind(), Some(QueueKind::FunctionPrediction));
        let queues = assigned(&directory, &target.version, DirectorJobKind::Procedure);
        assert_eq!(queues, [name.to_string()]);
    }
}
