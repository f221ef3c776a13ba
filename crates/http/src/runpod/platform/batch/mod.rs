//! `/v2/{endpoint}/batch…`: many requests under one id, which run with low priority.

mod documents;
mod runner;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::store::StoreError;
use tidegate_core::{JobId, Status};

use documents::{Batch, BatchKey, BatchRequest, BatchState};
pub use runner::Batches;

use super::client_request::ClientRequest;
use super::clients::{new_id, ok_json};
use super::limits::RequestKind;
use super::query::EndpointQuery;
use super::reply::ApiError;
use super::wire::{JobRequest, input_of};
use super::{AppState, render};
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::parse_body::{BodyParseError, parse_object};

/// The most unfinished batches of an account at an endpoint, and the most requests of a batch.
const MAX_BATCHES: usize = 10;
const MAX_REQUESTS: usize = 5000;
/// The default and the maximum number of listed requests.
const DEFAULT_LISTED: usize = 100;
const MAX_LISTED: usize = 1000;

/// The body that creates a batch or adds requests. A bare list is `requests`.
#[derive(Default, Deserialize)]
struct BatchBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    requests: Vec<Box<RawValue>>,
}

/// A batch in responses.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BatchJson {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    status: BatchState,
    endpoint_id: String,
    request_total: usize,
    request_in_queue: usize,
    request_in_progress: usize,
    request_completed: usize,
    request_failed: usize,
    request_cancelled: usize,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    finalized_at: Option<Timestamp>,
}

#[derive(Serialize)]
struct BatchList {
    batches: Vec<BatchJson>,
}

#[derive(Serialize)]
struct BatchRequestList {
    requests: Vec<Box<RawValue>>,
    total: usize,
    offset: usize,
    limit: usize,
}

#[derive(Serialize)]
struct RequestsAdded {
    #[serde(flatten)]
    batch: BatchJson,
    requests: Vec<RequestId>,
}

#[derive(Serialize)]
struct RequestId {
    id: JobId,
}

/// `POST /v2/{endpoint}/batch`
pub(super) async fn create(request: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let access = request.access_endpoint(RequestKind::Run)?;
    let app = &request.app;
    let body_json = app.batch_body(body).await?;
    let batches = &app.config.batches;
    let _lock = batches.change_lock.write().await;
    let active = batches
        .documents
        .of_endpoint(&request.caller.account, &access.name)
        .await?
        .iter()
        .filter(|(_, batch)| batch.is_active())
        .count();
    if active >= MAX_BATCHES {
        return Err(ApiError::Conflict(format!(
            "{MAX_BATCHES} batches are unfinished; wait for one to end, or cancel one"
        )));
    }
    let key = request.key(new_id("batch-", "").to_string());
    let mut batch = Batch::new(body_json.name);
    app.add(&key, &mut batch, body_json.requests).await
}

/// `POST /v2/{endpoint}/batch/{id}/requests`
pub(super) async fn add(request: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let _access = request.access_endpoint(RequestKind::Run)?;
    let app = &request.app;
    let body_json = app.batch_body(body).await?;
    let _lock = app.config.batches.change_lock.write().await;
    let (key, mut batch) = app.draft(&request).await?;
    app.add(&key, &mut batch, body_json.requests).await
}

/// `PUT /v2/{endpoint}/batch/{id}`: renames the batch.
pub(super) async fn rename(request: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let _access = request.access_endpoint(RequestKind::Run)?;
    let app = &request.app;
    let body_json = app.batch_body(body).await?;
    let _lock = app.config.batches.change_lock.write().await;
    let (key, mut batch) = app.batch(&request).await?;
    batch.name = body_json.name;
    app.config.batches.documents.put(&key, &batch).await?;
    Ok(ok_json(&app.batch_json(&key, &batch)))
}

/// `PUT /v2/{endpoint}/batch/{id}/requests/{request}`: replaces a request.
pub(super) async fn change(request: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let _access = request.access_endpoint(RequestKind::Run)?;
    let app = &request.app;
    let body = app.body(body, app.config.max_body).await?;
    let wanted = checked(&body)?;
    let _lock = app.config.batches.change_lock.write().await;
    let (key, batch) = app.draft(&request).await?;
    let number = number(&key, &batch, &request.request_id)?;
    app.config
        .batches
        .documents
        .put_request(&key, number, &BatchRequest::Pending(wanted))
        .await?;
    Ok(ok_json(&app.batch_json(&key, &batch)))
}

/// `DELETE /v2/{endpoint}/batch/{id}/requests/{request}`
pub(super) async fn remove(request: ClientRequest) -> Result<Response, ApiError> {
    let _access = request.access_endpoint(RequestKind::Run)?;
    let app = &request.app;
    let _lock = app.config.batches.change_lock.write().await;
    let (key, mut batch) = app.draft(&request).await?;
    let number = number(&key, &batch, &request.request_id)?;
    batch.remove(number);
    app.config.batches.documents.put(&key, &batch).await?;
    app.config
        .batches
        .documents
        .remove_request(&key, number)
        .await?;
    Ok(ok_json(&app.batch_json(&key, &batch)))
}

/// `POST /v2/{endpoint}/batch/{id}/finalize`: starts the batch.
pub(super) async fn finalize(request: ClientRequest) -> Result<Response, ApiError> {
    let _access = request.access_endpoint(RequestKind::Run)?;
    let app = &request.app;
    let _lock = app.config.batches.change_lock.write().await;
    let (key, mut batch) = app.draft(&request).await?;
    if batch.total() == 0 {
        return Err(ApiError::Conflict(
            "the batch has no requests; add some first".to_owned(),
        ));
    }
    (batch.state, batch.finalized_at) = (BatchState::Finalized, Some(Timestamp::now()));
    app.config.batches.documents.put(&key, &batch).await?;
    app.config.batches.run(key.clone());
    Ok(ok_json(&app.batch_json(&key, &batch)))
}

/// `POST /v2/{endpoint}/batch/{id}/cancel`: running jobs continue, and no other request starts.
pub(super) async fn cancel(request: ClientRequest) -> Result<Response, ApiError> {
    let access = request.access_endpoint(RequestKind::Cancel)?;
    let app = &request.app;
    let _lock = app.config.batches.change_lock.write().await;
    let (key, mut batch) = app.batch(&request).await?;
    if batch.is_active() && batch.state != BatchState::Cancelled {
        if batch.state == BatchState::Draft {
            (batch.over_at, batch.tally.cancelled) = (Some(Timestamp::now()), batch.total());
        }
        batch.state = BatchState::Cancelled;
        app.config.batches.documents.put(&key, &batch).await?;
        let requests: Vec<JobId> = batch.numbers().map(|number| key.request(number)).collect();
        access.jobs.loaded().await;
        let waits = |id: &&JobId| access.jobs.is_waiting(&key.account, id);
        // Concurrently, because each cancel waits for the store.
        let canceled = join_all(
            requests
                .iter()
                .filter(waits)
                .map(|id| access.cancel(&key.account, id)),
        )
        .await;
        canceled.into_iter().collect::<Result<Vec<_>, _>>()?;
    }
    Ok(ok_json(&app.batch_json(&key, &batch)))
}

/// `GET /v2/{endpoint}/batch`: newest first.
pub(super) async fn list(request: ClientRequest) -> Result<Response, ApiError> {
    let access = request.access_endpoint(RequestKind::Requests)?;
    let app = &request.app;
    let mut all = app
        .config
        .batches
        .documents
        .of_endpoint(&request.caller.account, &access.name)
        .await?;
    all.sort_by_key(|(_, batch)| std::cmp::Reverse(batch.created_at));
    Ok(ok_json(&BatchList {
        batches: all
            .iter()
            .map(|(key, batch)| app.batch_json(key, batch))
            .collect(),
    }))
}

/// `GET /v2/{endpoint}/batch/{id}`
pub(super) async fn get(request: ClientRequest) -> Result<Response, ApiError> {
    let _access = request.access_endpoint(RequestKind::Status)?;
    let app = &request.app;
    let (key, batch) = app.batch(&request).await?;
    Ok(ok_json(&app.batch_json(&key, &batch)))
}

/// `GET /v2/{endpoint}/batch/{id}/requests?offset=N&limit=N`
pub(super) async fn requests(request: ClientRequest) -> Result<Response, ApiError> {
    let access = request.access_endpoint(RequestKind::Status)?;
    let app = &request.app;
    let query = EndpointQuery::of(&request.uri);
    let (offset, limit) = (
        query.number("offset", 0)?,
        query.number("limit", DEFAULT_LISTED)?.clamp(1, MAX_LISTED),
    );
    let (key, batch) = app.batch(&request).await?;
    let mut requests = Vec::new();
    for number in batch.numbers().skip(offset).take(limit) {
        let id = key.request(number);
        let json = match app.config.batches.documents.request(&key, number).await? {
            None => continue,
            Some(BatchRequest::Finished(told)) => told,
            Some(BatchRequest::Pending(wanted)) if batch.state == BatchState::Draft => {
                raw(&draft(&id, &wanted))?
            }
            Some(BatchRequest::Pending(_)) => match access.jobs.get_in_memory(&key.account, &id) {
                Some(job) => raw(&render::job(&job.snapshot()))?,
                None => raw(&render::summary(id.as_str(), "IN_QUEUE"))?,
            },
        };
        requests.push(json);
    }
    Ok(ok_json(&BatchRequestList {
        requests,
        total: batch.total(),
        offset,
        limit,
    }))
}

impl ClientRequest {
    fn key(&self, id: String) -> BatchKey {
        BatchKey {
            account: self.caller.account.clone(),
            endpoint: self.endpoint.clone(),
            id,
        }
    }
}

impl AppState {
    async fn batch_body(&self, body: Body) -> Result<BatchBody, ApiError> {
        let body = self.body(body, self.config.max_body).await?;
        if body.trim_ascii_start().starts_with(b"[") {
            let requests = serde_json::from_slice(&body).map_err(BodyParseError::Syntax)?;
            return Ok(BatchBody {
                name: None,
                requests,
            });
        }
        Ok(parse_object(&body)?.unwrap_or_default())
    }

    /// Adds all requests to a draft, which may be new, or none.
    async fn add(
        &self,
        key: &BatchKey,
        batch: &mut Batch,
        requests: Vec<Box<RawValue>>,
    ) -> Result<Response, ApiError> {
        if batch.total() + requests.len() > MAX_REQUESTS {
            return Err(ApiError::InvalidRequest(format!(
                "a batch has at most {MAX_REQUESTS} requests; create another batch for the rest"
            )));
        }
        for (index, request) in requests.iter().enumerate() {
            checked(&Bytes::copy_from_slice(request.get().as_bytes()))
                .map_err(|error| ApiError::InvalidRequest(format!("requests[{index}]: {error}")))?;
        }
        let documents = &self.config.batches.documents;
        let numbered: Vec<_> = requests
            .into_iter()
            .map(|request| (batch.next_number(), BatchRequest::Pending(request)))
            .collect();
        // Concurrently, because the store commits concurrent writes together.
        try_join_all(
            numbered
                .iter()
                .map(|(number, request)| documents.put_request(key, *number, request)),
        )
        .await?;
        // Last: requests that the batch does not list are ignored and overwritten by the next ones.
        documents.put(key, batch).await?;
        let added = numbered
            .iter()
            .map(|(number, _)| RequestId {
                id: key.request(*number),
            })
            .collect();
        Ok(ok_json(&RequestsAdded {
            batch: self.batch_json(key, batch),
            requests: added,
        }))
    }

    async fn batch(&self, request: &ClientRequest) -> Result<(BatchKey, Batch), ApiError> {
        let key = request.key(request.id.clone());
        match self.config.batches.documents.get(&key).await? {
            Some(batch) => Ok((key, batch)),
            None => Err(ApiError::NoSuchBatch(key.id.chars().take(100).collect())),
        }
    }

    async fn draft(&self, request: &ClientRequest) -> Result<(BatchKey, Batch), ApiError> {
        let (key, batch) = self.batch(request).await?;
        match batch.state {
            BatchState::Draft => Ok((key, batch)),
            BatchState::Finalized | BatchState::Cancelled => Err(ApiError::Conflict(
                "the batch is no longer a draft and cannot be changed".to_owned(),
            )),
        }
    }

    fn batch_json(&self, key: &BatchKey, batch: &Batch) -> BatchJson {
        let tally = self.config.batches.tally(key).unwrap_or(batch.tally);
        let over = tally.completed + tally.failed + tally.cancelled;
        let runs = batch.state != BatchState::Draft && batch.is_active();
        let in_progress = if runs {
            self.in_progress(key, batch)
        } else {
            0
        };
        BatchJson {
            id: key.id.clone(),
            name: batch.name.clone(),
            status: batch.state,
            endpoint_id: key.endpoint.clone(),
            request_total: batch.total(),
            request_in_queue: if runs {
                batch.total().saturating_sub(over + in_progress)
            } else {
                0
            },
            request_in_progress: in_progress,
            request_completed: tally.completed,
            request_failed: tally.failed,
            request_cancelled: tally.cancelled,
            created_at: batch.created_at,
            finalized_at: batch.finalized_at,
        }
    }

    fn in_progress(&self, key: &BatchKey, batch: &Batch) -> usize {
        let Some(endpoint) = self.endpoints.get(&key.endpoint) else {
            return 0;
        };
        let runs = |number| {
            let status = endpoint
                .jobs
                .get_in_memory(&key.account, &key.request(number))
                .map(|job| job.status());
            matches!(status, Some(Status::Starting | Status::Processing))
        };
        batch.numbers().filter(|number| runs(*number)).count()
    }
}

/// A request of a draft.
fn draft(id: &JobId, wanted: &RawValue) -> Bytes {
    let input = input_of(&Bytes::copy_from_slice(wanted.get().as_bytes()));
    JsonObjectWriter::with_capacity(wanted.get().len())
        .field("id", id)
        .field("status", &BatchState::Draft)
        .raw("input", input.as_ref())
        .finish()
}

/// Checks that a request can be run.
fn checked(body: &Bytes) -> Result<Box<RawValue>, ApiError> {
    JobRequest::read(body)?;
    raw(body)
}

fn raw(json: &[u8]) -> Result<Box<RawValue>, ApiError> {
    Ok(serde_json::from_slice(json).map_err(BodyParseError::Syntax)?)
}

fn number(key: &BatchKey, batch: &Batch, request: &str) -> Result<u32, ApiError> {
    let found = batch
        .numbers()
        .find(|number| key.request(*number).as_str() == request);
    found.ok_or_else(|| ApiError::NoSuchJob(request.chars().take(100).collect()))
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = %tidegate_core::chain(&error), "failed to read or write batch");
        Self::Store
    }
}
