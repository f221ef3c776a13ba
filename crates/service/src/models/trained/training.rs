//! The port that creates a model version from the output of a training.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_core::record::Target;
use tidegate_core::store::StoreError;
use tidegate_core::trained_version::TrainedVersion;
use tidegate_core::{Account, JobId};

use crate::files::store::FileStoreError;
use crate::job::Job;

/// The key in the output of a training that holds the weights.
const WEIGHTS: &str = "weights";
/// The key that the server adds: the name of the version that was created.
const VERSION: &str = "version";

/// A training that has succeeded, before its end is visible.
pub struct Training<'a> {
    /// The account that owns the job.
    pub account: &'a Account,
    /// The id of the job.
    pub id: &'a JobId,
    /// The model and version that were trained.
    pub target: &'a Target,
    /// The model that gets the new version, `owner/name`.
    pub destination: &'a str,
    /// The value of `weights` in its output.
    pub weights: &'a str,
}

/// Why no version was created from a training.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// The version whose code would run the weights was removed.
    #[error("the version that was trained was removed in the meantime")]
    Removed,
    /// The weights or the version could not be stored.
    #[error(transparent)]
    Storage(#[from] FileStoreError),
    /// Another process refused it: a message for the client.
    #[error("{0}")]
    Refused(String),
}

impl From<StoreError> for VersionError {
    fn from(error: StoreError) -> Self {
        Self::Storage(error.into())
    }
}

impl VersionError {
    /// The message for the client.
    pub(crate) fn client_message(&self) -> String {
        match self {
            Self::Removed | Self::Refused(_) => self.to_string(),
            Self::Storage(error) => error.client_message(),
        }
    }
}

/// Creates versions from trainings, and removes them.
#[async_trait]
pub trait VersionMaker: Send + Sync {
    /// Creates a version. It is stored and accepts jobs when this returns. `None` when the weights
    /// are nothing that a model can load.
    async fn make(&self, training: Training<'_>) -> Result<Option<TrainedVersion>, VersionError>;

    /// Removes a version. Its running jobs are finished.
    async fn remove_version(&self, trained: &TrainedVersion) -> Result<(), StoreError>;

    /// Reads the versions that other processes have made or removed.
    async fn refresh(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Creates the version of one training that runs for another process.
#[async_trait]
pub trait VersionCreation: Send + Sync {
    /// Creates a version from these weights; returns its full name. `None` when they are nothing that a
    /// model can load.
    async fn create(&self, weights: &str) -> Result<Option<String>, VersionError>;
}

/// Who creates the version of a training.
pub(crate) enum VersionCreator<'a> {
    /// This process, if it creates versions.
    Own(Option<Arc<dyn VersionMaker>>),
    /// The process that accepted the training.
    Other(&'a dyn VersionCreation),
}

/// The output of a training, with the name of the version that was created from it, if any. The
/// error is a message for the client.
pub(crate) async fn attach_version(
    creator: VersionCreator<'_>,
    job: &Job,
    destination: Option<&str>,
    output: Bytes,
) -> Result<Bytes, String> {
    let Some(destination) = destination else {
        return Ok(output);
    };
    let Some((fields, weights)) = parse_weights(&output) else {
        return Ok(output);
    };
    let training = Training {
        account: job.account(),
        id: job.id(),
        target: job.target(),
        destination,
        weights: &weights,
    };
    let created = match creator {
        VersionCreator::Own(None) => Ok(None),
        VersionCreator::Own(Some(maker)) => {
            let made = maker.make(training).await;
            made.map(|made| made.map(|trained| trained.full_name()))
        }
        VersionCreator::Other(creation) => creation.create(&weights).await,
    };
    match created {
        Ok(Some(name)) => Ok(with_version(fields, &name)),
        Ok(None) => Ok(output),
        Err(error) => Err(format!(
            "the training succeeded, but no version could be created from it: {}",
            error.client_message()
        )),
    }
}

type OutputFields = BTreeMap<String, Box<RawValue>>;

/// The fields of an output and its weights; `None` if it is not an object with text in `weights`.
fn parse_weights(output: &Bytes) -> Option<(OutputFields, String)> {
    let fields: OutputFields = serde_json::from_slice(output).ok()?;
    let weights = serde_json::from_str(fields.get(WEIGHTS)?.get()).ok()?;
    Some((fields, weights))
}

fn with_version(mut fields: OutputFields, name: &str) -> Bytes {
    let name = serde_json::value::to_raw_value(name).expect("a string serializes");
    fields.insert(VERSION.to_owned(), name);
    serde_json::to_vec(&fields)
        .expect("string keys serialize")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(output: &'static str) -> Option<String> {
        parse_weights(&Bytes::from_static(output.as_bytes())).map(|(_, weights)| weights)
    }

    #[test]
    fn only_an_object_with_text_weights_becomes_a_version() {
        assert_eq!(
            weights(r#"{"epochs": 2, "weights": "a\nb"}"#).as_deref(),
            Some("a\nb")
        );
        for other in [
            "null",
            "\"weights\"",
            "[{\"weights\": \"a\"}]",
            "{}",
            r#"{"weights": null}"#,
            r#"{"weights": ["a"]}"#,
        ] {
            assert_eq!(weights(other), None, "{other}");
        }
    }

    #[test]
    fn other_fields_of_the_output_stay_unchanged() {
        let output = Bytes::from_static(
            br#"{"weights":"w","loss":0.10000000000000000001,"version":"mine"}"#,
        );
        let (fields, _) = parse_weights(&output).unwrap();
        assert_eq!(
            with_version(fields, "me/mine:ab"),
            &br#"{"loss":0.10000000000000000001,"version":"me/mine:ab","weights":"w"}"#[..]
        );
    }
}
