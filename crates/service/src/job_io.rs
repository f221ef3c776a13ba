//! Carries inputs to a model and outputs from it for who talks to an executor without a desk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidegate_core::policy::OutputFilePolicy;
use tidegate_core::{Account, JobId, JobKind, OutputValue, Refusal, chain};

use crate::files::{Files, OutputOwner};
use crate::input::{CheckedInput, ModelSchema};
use crate::run_blocking::run_blocking_if_large;

/// Checks inputs, fetches their files, and makes the files of outputs into something that can be sent.
pub struct JobIo {
    files: Files,
    /// Names a place for the files of a job.
    scratch: Arc<dyn Fn() -> PathBuf + Send + Sync>,
    /// The model's schema, read once for each load of it.
    schema: Mutex<Option<Arc<ModelSchema>>>,
}

/// An input that fits, with its files.
#[derive(Debug)]
pub struct PreparedInput {
    /// What goes to the model.
    pub input: Bytes,
    /// The files: JSON pointer into the input to local path.
    pub files: BTreeMap<String, PathBuf>,
    /// Where the files of the job are. Whoever runs it removes it.
    pub scratch: PathBuf,
}

impl JobIo {
    /// A carrier that keeps files in the places that `scratch` names.
    pub fn new(files: Files, scratch: Arc<dyn Fn() -> PathBuf + Send + Sync>) -> Self {
        Self {
            files,
            scratch,
            schema: Mutex::default(),
        }
    }

    /// Makes an input ready for the model whose OpenAPI document this is. The error is for who sent it.
    pub async fn prepare_input(
        &self,
        document: Option<Arc<Bytes>>,
        input: &Bytes,
    ) -> Result<PreparedInput, String> {
        let schema = document.map(|document| self.schema(document)).transpose()?;
        let checked = match &schema {
            None => CheckedInput::unchanged(input),
            Some(schema) => run_blocking_if_large(input.len(), || {
                schema
                    .validator(JobKind::Prediction)
                    .check(input, &self.files, &Account::ANONYMOUS)
            })
            .map_err(|errors| Refusal::InvalidInput(errors).to_string())?,
        };
        let scratch = (self.scratch)();
        let files = match checked.files {
            none if none.is_empty() => BTreeMap::new(),
            files => self
                .files
                .fetch(&Account::ANONYMOUS, files, &scratch)
                .await
                .map_err(|error| error.to_string())?,
        };
        Ok(PreparedInput {
            input: checked.json,
            files,
            scratch,
        })
    }

    /// The JSON of a value with an address or a data URI in the place of each file.
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
        };
        self.files.publish(value, owner, scratch).await
    }

    fn schema(&self, document: Arc<Bytes>) -> Result<Arc<ModelSchema>, String> {
        let mut known = self.schema.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = known
            .as_ref()
            .filter(|schema| Arc::ptr_eq(&schema.document, &document))
        {
            return Ok(Arc::clone(schema));
        }
        let schema =
            Arc::new(ModelSchema::read(document).map_err(|error| chain(&error).to_string())?);
        *known = Some(Arc::clone(&schema));
        Ok(schema)
    }
}
