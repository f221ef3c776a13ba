//! `?queueRequest=true`: requests that wait in the durable queue until the fleet has capacity, under one id
//! that clients poll.
//!
//! Each request of a batch is a job of the job service of its model. The document of a batch is stored after
//! its jobs, so a client that gets an id finds all results, also after a restart.

mod executor;
mod queued_call;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_core::model_interface::MappedInput;
use tidegate_core::policy::{JobPolicies, QueueingPolicy};
use tidegate_core::port::BoxFuture;
use tidegate_core::record::{Api, Target};
use tidegate_core::store::{Documents, StoreError};
use tidegate_core::{Account, JobId, JobKind, Refusal, chain};
use tidegate_service::{
    JobService, ModelRegistry, OnDuplicateId, OnLost, ResponseMode, Submission,
};

pub(crate) use self::queued_call::QueuedError;

use self::executor::RoutedExecutor;
use super::GatewayState;
use super::error::GatewayError;
use super::inference::InferenceClient;
use super::request_body::{self, RequestBody};
use super::route::{InferenceOperation, InferenceRoute, query_value};
use crate::inference::{InferenceError, RefusedRequest};
use crate::workers_ai::batch::{
    AccountBatches, BatchBody, BatchItem, BatchTarget, ItemWork, MAX_BODY, WorkersAiBatches,
    is_poll,
};
use crate::workers_ai::error::WorkersAiError;

/// The names of the models that have had queued requests.
const MODELS: &str = "router-batch-models";
/// The value in the context of a job that names its account.
const ACCOUNT: &str = "account";
/// How often a request may start if the router dies each time. The request is rarely the reason.
const ATTEMPTS: u32 = 100;
/// A queued request that has no answer after this time fails.
const DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);
/// The largest body that may be a poll.
const MAX_POLL: u64 = 256;

/// What queued requests are stored in.
#[derive(Clone)]
pub struct BatchPorts {
    /// The job services of the models.
    pub models: ModelRegistry,
    /// The documents of batches.
    pub documents: Arc<dyn Documents>,
}

/// The queued requests of a router. Clones share their state.
#[derive(Clone)]
pub(super) struct BatchQueue {
    ports: BatchPorts,
    gateway: Weak<GatewayState>,
    services: Arc<Mutex<HashMap<String, JobService>>>,
    batches: Arc<WorkersAiBatches>,
}

/// How a request concerns the durable queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchCall {
    /// It has `queueRequest=true`.
    Queue,
    /// It may have nothing but the id of a batch.
    MaybePoll,
}

impl BatchCall {
    /// `None` if the request is an ordinary one.
    pub(super) fn of(route: &InferenceRoute, parts: &Parts) -> Option<Self> {
        if parts.uri.query().is_some()
            && query_value(&parts.uri, "queueRequest").as_deref() == Some("true")
        {
            return Some(Self::Queue);
        }
        let length = || {
            let text = parts.headers.get(CONTENT_LENGTH)?.to_str().ok()?;
            text.parse::<u64>().ok()
        };
        let is_run = route.operation == InferenceOperation::Run;
        (is_run && length().is_some_and(|bytes| bytes <= MAX_POLL)).then_some(Self::MaybePoll)
    }
}

impl BatchQueue {
    pub(super) fn new(ports: BatchPorts, gateway: Weak<GatewayState>) -> Self {
        let documents = Arc::clone(&ports.documents);
        Self {
            ports,
            gateway,
            services: Arc::default(),
            batches: Arc::new(WorkersAiBatches::new(documents)),
        }
    }

    /// Opens the job services of all models that have had queued requests.
    pub(super) async fn open_known_models(&self) -> Result<(), StoreError> {
        for (model, _) in self.ports.documents.all(MODELS, "").await? {
            self.open(&model);
        }
        Ok(())
    }

    /// The job service of a model. The first call records that the model has one.
    async fn service(&self, model: &str) -> Result<JobService, StoreError> {
        if let Some(service) = self.services().get(model) {
            return Ok(service.clone());
        }
        let empty = Bytes::from_static(b"{}");
        self.ports.documents.put_new(MODELS, model, empty).await?;
        Ok(self.open(model))
    }

    /// Whether a model has had queued requests.
    fn has_service(&self, model: &str) -> bool {
        self.services().contains_key(model)
    }

    fn open(&self, model: &str) -> JobService {
        let mut services = self.services();
        if let Some(service) = services.get(model) {
            return service.clone();
        }
        let executor = RoutedExecutor::new(model, Weak::clone(&self.gateway));
        let jobs = self.ports.models.lookup().for_endpoint(
            Arc::new(executor),
            Target::of_routed_model(model),
            OnLost::Retry { attempts: ATTEMPTS },
        );
        self.ports.models.offer_endpoint(jobs.clone());
        services.insert(model.to_owned(), jobs.clone());
        jobs
    }

    fn services(&self) -> std::sync::MutexGuard<'_, HashMap<String, JobService>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a batch, or answers how far one is.
    async fn answer(
        &self,
        account: &Account,
        model: &str,
        body: &[u8],
    ) -> Result<Response, WorkersAiError> {
        let batches = AccountBatches {
            documents: &self.batches,
            models: &self.ports.models,
            account,
            name: model,
            model,
        };
        match BatchBody::parse(body)? {
            BatchBody::Poll(id) => batches.poll(&id).await,
            BatchBody::New(items) => {
                let service = self.service(model).await.map_err(|error| {
                    tracing::error!(error = %chain(&error), "failed to use store");
                    WorkersAiError::from(Refusal::StoreUnavailable)
                })?;
                let account = account.clone();
                let target = Arc::new(RoutedModel { service, account });
                batches.create(target, &items).await
            }
        }
    }
}

/// A model of the router that an account sends requests to.
struct RoutedModel {
    service: JobService,
    account: Account,
}

#[async_trait]
impl BatchTarget for RoutedModel {
    fn prepare(&self, request: &RawValue) -> Result<(BatchItem, Vec<MappedInput>), WorkersAiError> {
        let Ok(mut input) = serde_json::from_str::<Map<String, Value>>(request.get()) else {
            let error = WorkersAiError::invalid("a request must be an object");
            let item = BatchItem {
                external_reference: None,
                work: ItemWork::Refused(error.item()),
            };
            return Ok((item, Vec::new()));
        };
        let item = BatchItem {
            external_reference: input.remove("external_reference"),
            work: ItemWork::Routed,
        };
        // The results of a batch are documents.
        input.remove("stream");
        let input = MappedInput {
            input,
            ..MappedInput::default()
        };
        Ok((item, vec![input]))
    }

    async fn queue(&self, id: JobId, input: &MappedInput) -> Result<(), InferenceError> {
        let submission = Submission {
            account: self.account.clone(),
            id: Some(id),
            kind: JobKind::Prediction,
            input: Value::Object(input.input.clone()).to_string().into(),
            webhook: None,
            context: account_context(&self.account),
            response_mode: ResponseMode::Async,
            on_duplicate: OnDuplicateId::Refuse,
            deadline: Some(DEADLINE),
            api: Api::WorkersAi,
            policies: JobPolicies {
                queueing: QueueingPolicy::Queue,
                ..Api::WorkersAi.policies()
            },
            deployment: None,
            destination: None,
            warnings: Vec::new(),
        };
        let submitted = self.service.submit(submission).await;
        submitted.map(|_| ()).map_err(|refusal| {
            let busy_for = || self.service.retry_after();
            InferenceError::Refused(RefusedRequest::new(refusal, busy_for))
        })
    }

    fn spawn(&self, work: BoxFuture<()>) {
        self.service.spawn_tracked(work);
    }
}

/// Names the account of a job to its executor. Clients without an account have no name.
fn account_context(account: &Account) -> BTreeMap<String, String> {
    let named = Some(account).filter(|account| !account.is_anonymous());
    let entry = named.map(|account| (ACCOUNT.to_owned(), account.as_str().to_owned()));
    entry.into_iter().collect()
}

impl GatewayState {
    /// Answers a request that may concern the durable queue.
    pub(super) async fn answer_batch_call(
        self: &Arc<Self>,
        call: BatchCall,
        client: InferenceClient,
        route: InferenceRoute,
        parts: Parts,
        body: Body,
    ) -> Response {
        if call == BatchCall::MaybePoll && self.batches.get().is_none() {
            return self.infer_for(client, route, parts, body).await;
        }
        match self.batch_answer(call, &client, &route, &parts, body).await {
            Ok(BatchAnswer::Response(response)) => response,
            Ok(BatchAnswer::Other(body)) => self.infer_for(client, route, parts, body).await,
            Err(error) => self.refuse(route.api, &error),
        }
    }

    async fn batch_answer(
        self: &Arc<Self>,
        call: BatchCall,
        client: &InferenceClient,
        route: &InferenceRoute,
        parts: &Parts,
        body: Body,
    ) -> Result<BatchAnswer, GatewayError> {
        let (InferenceOperation::Run, Some(model)) = (&route.operation, &route.model) else {
            return Err(GatewayError::QueueElsewhere);
        };
        let Some(batches) = self.batches.get().cloned() else {
            return Err(GatewayError::NoQueue);
        };
        let read = request_body::read(body, &parts.headers, MAX_BODY, true).await?;
        let RequestBody::Kept(body) = read.body else {
            let error = WorkersAiError::too_large(format!("a batch has at most {MAX_BODY} bytes"));
            return Ok(BatchAnswer::Response(error.into_response()));
        };
        let is_poll = is_poll(&body);
        if call == BatchCall::MaybePoll && !is_poll {
            return Ok(BatchAnswer::Other(Body::from(body)));
        }
        let table = self.registry.table();
        let in_fleet = table.route(model).map(|(model, _)| model.name.clone());
        // The results of a model are there while its backends are not.
        let known = || (is_poll && batches.has_service(model)).then(|| model.clone());
        let Some(model) = in_fleet.or_else(known) else {
            return Err(GatewayError::UnknownModel(model.clone()));
        };
        let _counted = self.registry.accounts().enter(client.account())?;
        let account = client.account().clone();
        // The first request for a model starts the loop that runs its jobs. A batch whose client leaves is
        // canceled.
        let answer = self
            .background
            .run(async move { batches.answer(&account, &model, &body).await });
        Ok(BatchAnswer::Response(
            answer.await.unwrap_or_else(IntoResponse::into_response),
        ))
    }
}

enum BatchAnswer {
    /// The answer to a batch or a poll.
    Response(Response),
    /// The request is an ordinary one, with this body.
    Other(Body),
}
