//! Runs requests in the terms of `tidegate_core::inference` as jobs of the models of this server.
//!
//! The APIs that have texts and embeddings instead of named inputs use it. It knows no format of an API.

mod embeddings;
mod output;
mod refused;
mod stream_body;
mod text_job;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value};
use tidegate_core::health::Health;
use tidegate_core::model_interface::{MappedInput, ModelInterface, UnsupportedRequest};
use tidegate_core::policy::{JobPolicies, QueueingPolicy};
use tidegate_core::record::Api;
use tidegate_core::text_generation::{TextError, TextErrorKind};
use tidegate_core::{Account, JobId, JobKind, Refusal, Status};
use tidegate_service::{
    JobService, ModelRegistry, ModelSchema, OnDuplicateId, ResponseMode, ServedModel, Snapshot,
    Submission, Submitted, Ticket,
};

pub(crate) use embeddings::embeddings_of;
pub(crate) use output::{answer_of_output, output_value};
pub(crate) use refused::{RefusalKind, RefusedRequest};
pub(crate) use stream_body::{FirstEvents, stream_body};
pub(crate) use text_job::{TextJob, TextRules};

/// How long a request waits until the schema of a model is known that is being loaded.
const SCHEMA_TIMEOUT: Duration = Duration::from_secs(20);
/// The prefixes of model names in Workers AI, which no model here has.
const FOREIGN_PREFIXES: [&str; 2] = ["@cf/", "@hf/"];

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum InferenceError {
    /// The model cannot be asked for this.
    Unsupported(UnsupportedRequest),
    /// The job was refused. An invalid input has the name of the request's parameter.
    Refused(RefusedRequest),
    /// The job failed.
    Failed(TextError),
}

impl From<UnsupportedRequest> for InferenceError {
    fn from(error: UnsupportedRequest) -> Self {
        Self::Unsupported(error)
    }
}

impl From<TextError> for InferenceError {
    fn from(error: TextError) -> Self {
        Self::Failed(error)
    }
}

/// The model that a client names: `owner/name`, `name`, or the name of its folder.
pub(crate) fn find_model(models: &ModelRegistry, name: &str) -> Option<Arc<ServedModel>> {
    let name = FOREIGN_PREFIXES
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    if let Some(model) = models.get(name) {
        return Some(model);
    }
    let is_named = |model: &Arc<ServedModel>| {
        let (_, short) = model.name().split_once('/').unwrap_or_default();
        let version = model.current();
        short == name
            || version
                .folder
                .file_name()
                .is_some_and(|folder| folder == name)
    };
    let mut found = models.all().into_iter().filter(is_named);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// A model that requests are sent to.
pub(crate) struct InferenceModel {
    service: JobService,
    schema: Arc<ModelSchema>,
    caller: Account,
    api: Api,
}

impl InferenceModel {
    /// The model for the requests of one account.
    pub(crate) async fn open(
        service: JobService,
        caller: &Account,
        api: Api,
    ) -> Result<Self, RefusedRequest> {
        service.wait_for_description(SCHEMA_TIMEOUT).await;
        let Some(schema) = service.description() else {
            let health = match service.health().await.health {
                // It has become ready just now.
                Health::Ready | Health::Busy => Health::Starting,
                health => health,
            };
            let refusal = Refusal::NotReady { health };
            service.count_refusal(api, &refusal);
            return Err(refusal.into());
        };
        Ok(Self {
            service,
            schema,
            caller: caller.clone(),
            api,
        })
    }

    pub(crate) fn interface(&self) -> &ModelInterface {
        &self.schema.interface
    }

    /// Whether the model gives its output in parts while it runs.
    pub(crate) fn streams(&self) -> bool {
        self.schema.can_stream
    }

    /// Adds the fields of a request that are no parameters of its API and that are inputs of the model.
    fn add_extra_inputs(&self, input: &mut MappedInput, extra: &Map<String, Value>) {
        for (name, value) in extra {
            if self.interface().has_input(name) && !input.input.contains_key(name) {
                input.input.insert(name.clone(), value.clone());
            }
        }
    }

    /// Starts a job that is canceled when the ticket is dropped.
    async fn start(&self, input: &MappedInput) -> Result<Ticket, InferenceError> {
        self.start_with(input, self.api.policies()).await
    }

    async fn start_with(
        &self,
        input: &MappedInput,
        policies: JobPolicies,
    ) -> Result<Ticket, InferenceError> {
        let submission = Submission {
            response_mode: ResponseMode::Wait,
            ..self.submission(input, policies)
        };
        match self.submit(submission, input).await? {
            Submitted::New(ticket) => Ok(ticket.run_in_task()),
            // The id is new.
            Submitted::Running(job) | Submitted::Ended(job) => {
                let refusal = Refusal::IdInUse(job.id().clone());
                Err(InferenceError::Refused(refusal.into()))
            }
        }
    }

    /// Queues a job that runs without its client, under this id.
    pub(crate) async fn queue(&self, id: JobId, input: &MappedInput) -> Result<(), InferenceError> {
        let submission = Submission {
            id: Some(id),
            response_mode: ResponseMode::Async,
            ..self.submission(input, self.queued())
        };
        self.submit(submission, input).await.map(|_| ())
    }

    /// Runs work on jobs of the model that must not end with the request of a client.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.service.spawn_tracked(work);
    }

    /// The policies of a job that waits for a slot however long it takes.
    fn queued(&self) -> JobPolicies {
        JobPolicies {
            queueing: QueueingPolicy::Queue,
            ..self.api.policies()
        }
    }

    async fn submit(
        &self,
        submission: Submission,
        input: &MappedInput,
    ) -> Result<Submitted, InferenceError> {
        self.service.submit(submission).await.map_err(|refusal| {
            let refusal = named_by_parameters(refusal, input);
            let busy_for = || self.service.retry_after();
            InferenceError::Refused(RefusedRequest::new(refusal, busy_for))
        })
    }

    fn submission(&self, input: &MappedInput, policies: JobPolicies) -> Submission {
        let json = Value::Object(input.input.clone());
        Submission {
            account: self.caller.clone(),
            id: None,
            kind: JobKind::Prediction,
            input: Bytes::from(json.to_string()),
            webhook: None,
            context: Default::default(),
            response_mode: ResponseMode::Wait,
            on_duplicate: OnDuplicateId::Refuse,
            deadline: None,
            api: self.api,
            policies,
            deployment: None,
            destination: None,
            warnings: input.warnings.clone(),
        }
    }
}

/// The refusal with the parameters of the request in place of the inputs of the model.
fn named_by_parameters(refusal: Refusal, input: &MappedInput) -> Refusal {
    let Refusal::InvalidInput(mut errors) = refusal else {
        return refusal;
    };
    for error in &mut errors {
        let name = error.field.split('/').next().unwrap_or_default();
        error.field = input.parameter_of(name).to_owned();
    }
    Refusal::InvalidInput(errors)
}

/// The error of a job that has ended without an output.
pub(crate) fn failure(job: &Snapshot) -> Option<TextError> {
    let error = |kind, message: &str| {
        Some(TextError {
            kind,
            message: message.to_owned(),
        })
    };
    match job.status {
        Status::Succeeded => None,
        Status::Failed => {
            let message = job.error.as_deref().unwrap_or("the model failed");
            error(TextErrorKind::Failed, message)
        }
        Status::Aborted => error(TextErrorKind::TimedOut, "the request expired before it ran"),
        Status::Canceled | Status::Queued | Status::Starting | Status::Processing => {
            error(TextErrorKind::Canceled, "the request was canceled")
        }
    }
}
