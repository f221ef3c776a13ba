//! Input and output of jobs that run without a [`JobService`](crate::JobService): `tidegate worker`
//! calls the executor directly.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidegate_core::policy::OutputFilePolicy;
use tidegate_core::{Account, JobId, JobKind, OutputValue, Refusal, chain};

use crate::files::{Files, InputOwner, OutputOwner, StoredInputs};
use crate::input::{CheckedInput, ModelSchema};
use crate::run_blocking::run_blocking_if_large;

/// Validates inputs, fetches their files and publishes the files of outputs.
pub struct JobIo {
    files: Files,
    /// Returns a new folder path for the files of a job.
    scratch: Arc<dyn Fn() -> PathBuf + Send + Sync>,
    /// The model's schema, parsed once per load of the model.
    schema: Mutex<Option<Arc<ModelSchema>>>,
}

/// A valid input with its files.
#[derive(Debug)]
pub struct PreparedInput {
    /// The JSON for the model.
    pub input: Bytes,
    /// The local path of each file, by JSON pointer into the input.
    pub files: BTreeMap<String, PathBuf>,
    /// The folder of the job's files. The caller removes it after the job.
    pub scratch: PathBuf,
    /// What the client should know about the input.
    pub warnings: Vec<String>,
}

impl JobIo {
    /// Stores the files of each job in a folder that `scratch` returns.
    pub fn new(files: Files, scratch: Arc<dyn Fn() -> PathBuf + Send + Sync>) -> Self {
        Self {
            files,
            scratch,
            schema: Mutex::default(),
        }
    }

    /// Validates an input against the model's OpenAPI document and fetches its files. The error is
    /// a message for the client.
    pub async fn prepare_input(
        &self,
        document: Option<Arc<Bytes>>,
        input: &Bytes,
    ) -> Result<PreparedInput, String> {
        let schema = document.map(|document| self.schema(document)).transpose()?;
        let checked = match &schema {
            None => CheckedInput::unchanged(input),
            Some(schema) => run_blocking_if_large(input.len(), || {
                schema.validator(JobKind::Prediction).check(
                    input,
                    &self.files,
                    &StoredInputs::default(),
                )
            })
            .map_err(|errors| Refusal::InvalidInput(errors).to_string())?,
        };
        let scratch = (self.scratch)();
        let files = match checked.files {
            none if none.is_empty() => BTreeMap::new(),
            files => self
                .files
                .fetch(
                    InputOwner {
                        account: &Account::ANONYMOUS,
                        downloads: None,
                    },
                    files,
                    &scratch,
                )
                .await
                .map_err(|error| error.to_string())?,
        };
        Ok(PreparedInput {
            input: checked.json,
            files,
            scratch,
            warnings: checked.warnings,
        })
    }

    /// Publishes the files of an output and returns its JSON with a URL or data URI for each of
    /// them.
    pub async fn collect_output(
        &self,
        id: &JobId,
        value: OutputValue,
        scratch: &Path,
    ) -> Result<Bytes, String> {
        if value.files.is_empty() {
            return Ok(value.json);
        }
        let owner = OutputOwner {
            account: &Account::ANONYMOUS,
            id,
            policy: OutputFilePolicy::Inline,
            uploads: None,
        };
        self.files.publish(value, owner, scratch).await
    }

    fn schema(&self, document: Arc<Bytes>) -> Result<Arc<ModelSchema>, String> {
        let mut cached = self.schema.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = cached
            .as_ref()
            .filter(|schema| Arc::ptr_eq(&schema.document, &document))
        {
            return Ok(Arc::clone(schema));
        }
        let schema =
            Arc::new(ModelSchema::read(document).map_err(|error| chain(&error).to_string())?);
        *cached = Some(Arc::clone(&schema));
        Ok(schema)
    }
}
