//! Names of queues. The queues that processes share have the names that Replicate's tools expect; the
//! name follows from the jobs that wait in the queue, so that all processes derive the same one.

use std::fmt;
use std::fmt::Write;
use std::sync::Arc;

use ring::digest::{SHA256, digest};

use crate::JobKind;
use crate::record::Target;

/// The name of a queue. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

/// What the jobs of a shared queue have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// Predictions of one version of a model.
    VersionPrediction,
    /// Predictions of one version through one deployment.
    DeploymentPrediction,
    /// Calls of one procedure.
    FunctionPrediction,
    /// Predictions of the trained versions that run the code of one version of a model.
    HotswapPrediction,
    /// Trainings of one version of a model.
    VersionTraining,
}

impl QueueKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::VersionPrediction,
        Self::DeploymentPrediction,
        Self::FunctionPrediction,
        Self::HotswapPrediction,
        Self::VersionTraining,
    ];

    /// How the names of the queues of this kind begin.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::VersionPrediction => "input:prediction:vp-",
            Self::DeploymentPrediction => "input:prediction:dp-",
            Self::FunctionPrediction => "input:prediction:fp-",
            Self::HotswapPrediction => "input:prediction:hp-",
            Self::VersionTraining => "input:training:vt-",
        }
    }
}

impl QueueName {
    /// The queue that predictions of versions and calls of procedures share, if they share one.
    pub const UNIFIED: &str = "input:prediction:fp-00000000000000000000000000000000";

    /// The queue with this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The shared queue of the jobs of this kind for a target: that of its deployment if the jobs were
    /// created through one, otherwise that of its version. Trainings never wait in the queue of a
    /// deployment. A deployment has a queue for each version that it had, because a director runs the jobs
    /// of its own versions only.
    pub fn of(kind: JobKind, target: &Target) -> Self {
        let version = format!("{}:{}", target.model, target.version);
        match (kind, &target.deployment) {
            (JobKind::Training, _) => Self::of_kind(QueueKind::VersionTraining, &version),
            (JobKind::Prediction, Some(named)) => {
                let subject = format!("{} {version}", named.deployment);
                Self::of_kind(QueueKind::DeploymentPrediction, &subject)
            }
            (JobKind::Prediction, None) => Self::of_kind(QueueKind::VersionPrediction, &version),
        }
    }

    /// The shared queue of the calls of a procedure.
    pub fn of_procedure(target: &Target) -> Self {
        let version = format!("{}:{}", target.model, target.version);
        Self::of_kind(QueueKind::FunctionPrediction, &version)
    }

    /// The shared queue of the jobs of trained versions that run the code of this version of a model. They
    /// share one, because there may be many of them with few jobs each; jobs that were created through a
    /// deployment wait in it too.
    pub fn of_trained(kind: JobKind, source: &Target) -> Self {
        let version = format!("{}:{}", source.model, source.version);
        match kind {
            JobKind::Prediction => Self::of_kind(QueueKind::HotswapPrediction, &version),
            JobKind::Training => {
                Self::of_kind(QueueKind::VersionTraining, &format!("{version} trained"))
            }
        }
    }

    /// The shared queue of a kind for a subject: `owner/name:version`, with the name of the deployment
    /// before it if there is one, or the name of a group of versions. The name ends with 32 hexadecimal
    /// digits of a hash of it.
    pub fn of_kind(kind: QueueKind, subject: &str) -> Self {
        let mut name = kind.prefix().to_owned();
        for byte in &digest(&SHA256, subject.as_bytes()).as_ref()[..16] {
            write!(name, "{byte:02x}").expect("a string accepts all text");
        }
        Self(name.into())
    }

    /// The kind of a shared queue.
    pub fn kind(&self) -> Option<QueueKind> {
        QueueKind::ALL
            .into_iter()
            .find(|kind| self.0.starts_with(kind.prefix()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as shared text.
    pub fn to_shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::DeploymentRef;

    fn target(model: &str, deployment: Option<&str>) -> Target {
        Target {
            model: model.to_owned(),
            version: "ab".repeat(32),
            deployment: deployment.map(|name| DeploymentRef {
                deployment: name.to_owned(),
                release: Some(2),
            }),
        }
    }

    #[test]
    fn names_follow_from_the_kind_and_the_target() {
        let version = QueueName::of(JobKind::Prediction, &target("ann/hello", None));
        let training = QueueName::of(JobKind::Training, &target("ann/hello", Some("ann/d")));
        let deployment = QueueName::of(JobKind::Prediction, &target("ann/hello", Some("ann/d")));
        for (name, kind) in [
            (&version, QueueKind::VersionPrediction),
            (&training, QueueKind::VersionTraining),
            (&deployment, QueueKind::DeploymentPrediction),
        ] {
            let digits = name
                .as_str()
                .strip_prefix(kind.prefix())
                .unwrap_or_default();
            assert!(
                digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()),
                "{name}"
            );
            assert_eq!(name.kind(), Some(kind));
        }
        assert_eq!(
            version.as_str().rsplit('-').next(),
            training.as_str().rsplit('-').next(),
            "both are for the same version"
        );
    }

    #[test]
    fn models_with_the_same_files_have_different_queues() {
        let names = ["ann/a", "ann/b"]
            .map(|model| QueueName::of(JobKind::Prediction, &target(model, None)));
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn the_releases_of_a_deployment_share_the_queue_of_their_version() {
        let first = target("ann/hello", Some("ann/d"));
        let mut next = first.clone();
        next.deployment = Some(DeploymentRef {
            deployment: "ann/d".to_owned(),
            release: Some(3),
        });
        let mut other = next.clone();
        other.version = "cd".repeat(32);
        let [first, next, other] =
            [first, next, other].map(|target| QueueName::of(JobKind::Prediction, &target));
        assert_eq!(first, next);
        assert_ne!(first, other);
    }

    #[test]
    fn the_trained_versions_of_a_version_share_a_queue_for_each_kind_of_job() {
        let source = target("ann/hello", None);
        let predictions = QueueName::of_trained(JobKind::Prediction, &source);
        let trainings = QueueName::of_trained(JobKind::Training, &source);
        assert_eq!(predictions.kind(), Some(QueueKind::HotswapPrediction));
        assert_eq!(trainings.kind(), Some(QueueKind::VersionTraining));
        // Directors that do not know trained versions read the queue of the version itself.
        assert_ne!(trainings, QueueName::of(JobKind::Training, &source));
    }

    #[test]
    fn the_unified_queue_is_one_of_functions() {
        let unified = QueueName::new(QueueName::UNIFIED);
        assert_eq!(unified.kind(), Some(QueueKind::FunctionPrediction));
        assert_eq!(QueueName::new("ann/hello:1#3").kind(), None);
    }
}
