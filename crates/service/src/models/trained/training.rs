//! The port of whoever makes versions of what trainings give, and what a training's output says about it.

use std::collections::BTreeMap;
use std::sync::{OnceLock, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::value::RawValue;
use tidegate_core::record::Target;
use tidegate_core::store::StoreError;
use tidegate_core::{Account, JobId};

use crate::files::store::FileStoreError;
use crate::job::Job;
use crate::models::trained::version::TrainedVersion;

/// The key of an output that holds what was trained, and the one that names the version that it became.
const WEIGHTS: &str = "weights";
const VERSION: &str = "version";

/// A training that has succeeded, and that nobody knows of yet.
pub struct Training<'a> {
    /// Whose it is.
    pub account: &'a Account,
    /// Which.
    pub id: &'a JobId,
    /// What was trained.
    pub target: &'a Target,
    /// The model that is to have a new version, `owner/name`.
    pub destination: &'a str,
    /// The weights, as they stand in its output.
    pub weights: &'a str,
}

/// Why no version was made of what a training gave.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// Nobody knows any more whose code would run the weights.
    #[error("the version that was trained has been removed meanwhile")]
    Removed,
    /// The weights could not be kept, or the version could not be written down.
    #[error(transparent)]
    Storage(#[from] FileStoreError),
}

impl From<StoreError> for VersionError {
    fn from(error: StoreError) -> Self {
        Self::Storage(error.into())
    }
}

impl VersionError {
    fn told(&self) -> String {
        match self {
            Self::Removed => self.to_string(),
            Self::Storage(error) => error.client_message(),
        }
    }
}

/// Makes versions of what trainings give, and removes them.
#[async_trait]
pub trait VersionMaker: Send + Sync {
    /// Makes a version, which is written down and takes jobs when this returns. `None` when there is nothing
    /// in the weights that a model could be given.
    async fn make(&self, training: Training<'_>) -> Result<Option<TrainedVersion>, VersionError>;

    /// Removes a version. Jobs that it has begun with are finished.
    async fn remove_version(&self, trained: &TrainedVersion) -> Result<(), StoreError>;
}

/// What a training gave, with the name of the version that was made of it, if one was. The error is for who wanted it.
pub(crate) async fn attach_version(
    maker: &OnceLock<Weak<dyn VersionMaker>>,
    job: &Job,
    destination: Option<&str>,
    output: Bytes,
) -> Result<Bytes, String> {
    let (Some(destination), Some(maker)) = (destination, maker.get().and_then(Weak::upgrade))
    else {
        return Ok(output);
    };
    let Some((fields, weights)) = weights_in(&output) else {
        return Ok(output);
    };
    let training = Training {
        account: job.account(),
        id: job.id(),
        target: job.target(),
        destination,
        weights: &weights,
    };
    match maker.make(training).await {
        Ok(Some(trained)) => Ok(with_version(fields, &trained)),
        Ok(None) => Ok(output),
        Err(error) => Err(format!(
            "the training has succeeded, but no version could be made of it: {}",
            error.told()
        )),
    }
}

type OutputFields = BTreeMap<String, Box<RawValue>>;

/// What an output says, and the weights in it.
fn weights_in(output: &Bytes) -> Option<(OutputFields, String)> {
    let fields: OutputFields = serde_json::from_slice(output).ok()?;
    let weights = serde_json::from_str(fields.get(WEIGHTS)?.get()).ok()?;
    Some((fields, weights))
}

fn with_version(mut fields: OutputFields, trained: &TrainedVersion) -> Bytes {
    let name = serde_json::value::to_raw_value(&trained.full_name()).expect("a text is JSON");
    fields.insert(VERSION.to_owned(), name);
    serde_json::to_vec(&fields)
        .expect("it has string keys")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(output: &'static str) -> Option<String> {
        weights_in(&Bytes::from_static(output.as_bytes())).map(|(_, weights)| weights)
    }

    #[test]
    fn only_an_object_with_weights_in_words_becomes_a_version() {
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
    fn what_else_the_training_said_stays_to_the_letter() {
        let output = Bytes::from_static(
            br#"{"weights":"w","loss":0.10000000000000000001,"version":"mine"}"#,
        );
        let (fields, _) = weights_in(&output).unwrap();
        let mut trained = crate::models::trained::version::sample();
        trained.ids = vec!["ab".to_owned()];
        assert_eq!(
            with_version(fields, &trained),
            &br#"{"loss":0.10000000000000000001,"version":"me/mine:ab","weights":"w"}"#[..]
        );
    }
}
