//! `/v2/{endpoint}/batch…`: many requests under one name, which run when nothing else waits.

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

use documents::{Batch, Key, Request, State};
pub use runner::Batches;

use super::client_request::ClientRequest;
use super::clients::{new_id, said};
use super::limits::Asked;
use super::query::Question;
use super::reply::ApiError;
use super::wire::{Wanted, input_of};
use super::{AppState, render};
use crate::shared::json_object::JsonObjectWriter;
use crate::shared::parse_body::{BodyParseError, parse_object};

/// How many batches of an account may be not over at an endpoint, and how many requests each may have.
const MOST_BATCHES: usize = 10;
const MOST_REQUESTS: usize = 5000;
/// How many requests are listed if nothing is said, and at most.
const LISTED: usize = 100;
const MOST_LISTED: usize = 1000;

/// A new batch, or more requests for one. A list alone is its requests.
#[derive(Default, Deserialize)]
struct Given {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    requests: Vec<Box<RawValue>>,
}

/// A batch as it is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    status: State,
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
struct Listed {
    batches: Vec<Told>,
}

#[derive(Serialize)]
struct Requests {
    requests: Vec<Box<RawValue>>,
    total: usize,
    offset: usize,
    limit: usize,
}

#[derive(Serialize)]
struct Added {
    #[serde(flatten)]
    batch: Told,
    requests: Vec<Id>,
}

#[derive(Serialize)]
struct Id {
    id: JobId,
}

/// `POST /v2/{endpoint}/batch`
pub(super) async fn create(visitor: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let visit = visitor.enter(Asked::Run)?;
    let app = &visitor.app;
    let given = app.given(body).await?;
    let batches = &app.config.batches;
    let _turn = batches.changing.write().await;
    let active = batches
        .shelf
        .of(&visitor.caller.account, &visit.name)
        .await?
        .iter()
        .filter(|(_, batch)| batch.is_active())
        .count();
    if active >= MOST_BATCHES {
        return Err(ApiError::Conflict(format!(
            "{MOST_BATCHES} batches are not over; finish or cancel one"
        )));
    }
    let key = visitor.key(new_id("batch-", "").to_string());
    let mut batch = Batch::new(given.name);
    app.add(&key, &mut batch, given.requests).await
}

/// `POST /v2/{endpoint}/batch/{id}/requests`
pub(super) async fn add(visitor: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let _visit = visitor.enter(Asked::Run)?;
    let app = &visitor.app;
    let given = app.given(body).await?;
    let _turn = app.config.batches.changing.write().await;
    let (key, mut batch) = app.draft(&visitor).await?;
    app.add(&key, &mut batch, given.requests).await
}

/// `PUT /v2/{endpoint}/batch/{id}`: another name.
pub(super) async fn rename(visitor: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let _visit = visitor.enter(Asked::Run)?;
    let app = &visitor.app;
    let given = app.given(body).await?;
    let _turn = app.config.batches.changing.write().await;
    let (key, mut batch) = app.batch(&visitor).await?;
    batch.name = given.name;
    app.config.batches.shelf.put(&key, &batch).await?;
    Ok(said(&app.told(&key, &batch)))
}

/// `PUT /v2/{endpoint}/batch/{id}/requests/{request}`: another request in its place.
pub(super) async fn change(visitor: ClientRequest, body: Body) -> Result<Response, ApiError> {
    let _visit = visitor.enter(Asked::Run)?;
    let app = &visitor.app;
    let body = app.body(body, app.config.max_body).await?;
    let wanted = checked(&body)?;
    let _turn = app.config.batches.changing.write().await;
    let (key, batch) = app.draft(&visitor).await?;
    let number = number(&key, &batch, &visitor.request)?;
    app.config
        .batches
        .shelf
        .put_request(&key, number, &Request::Wanted(wanted))
        .await?;
    Ok(said(&app.told(&key, &batch)))
}

/// `DELETE /v2/{endpoint}/batch/{id}/requests/{request}`
pub(super) async fn remove(visitor: ClientRequest) -> Result<Response, ApiError> {
    let _visit = visitor.enter(Asked::Run)?;
    let app = &visitor.app;
    let _turn = app.config.batches.changing.write().await;
    let (key, mut batch) = app.draft(&visitor).await?;
    let number = number(&key, &batch, &visitor.request)?;
    batch.remove(number);
    app.config.batches.shelf.put(&key, &batch).await?;
    app.config
        .batches
        .shelf
        .remove_request(&key, number)
        .await?;
    Ok(said(&app.told(&key, &batch)))
}

/// `POST /v2/{endpoint}/batch/{id}/finalize`: it runs from now on.
pub(super) async fn finalize(visitor: ClientRequest) -> Result<Response, ApiError> {
    let _visit = visitor.enter(Asked::Run)?;
    let app = &visitor.app;
    let _turn = app.config.batches.changing.write().await;
    let (key, mut batch) = app.draft(&visitor).await?;
    if batch.total() == 0 {
        return Err(ApiError::Conflict(
            "the batch has no requests; add some first".to_owned(),
        ));
    }
    (batch.state, batch.finalized_at) = (State::Finalized, Some(Timestamp::now()));
    app.config.batches.shelf.put(&key, &batch).await?;
    app.config.batches.run(key.clone());
    Ok(said(&app.told(&key, &batch)))
}

/// `POST /v2/{endpoint}/batch/{id}/cancel`: what has begun goes on, and nothing else begins.
pub(super) async fn cancel(visitor: ClientRequest) -> Result<Response, ApiError> {
    let visit = visitor.enter(Asked::Cancel)?;
    let app = &visitor.app;
    let _turn = app.config.batches.changing.write().await;
    let (key, mut batch) = app.batch(&visitor).await?;
    if batch.is_active() && batch.state != State::Cancelled {
        if batch.state == State::Draft {
            (batch.over_at, batch.tally.cancelled) = (Some(Timestamp::now()), batch.total());
        }
        batch.state = State::Cancelled;
        app.config.batches.shelf.put(&key, &batch).await?;
        let requests: Vec<JobId> = batch.numbers().map(|number| key.request(number)).collect();
        let waits = |id: &&JobId| {
            visit
                .jobs
                .known(&key.account, id)
                .is_some_and(|job| job.status() == Status::Queued)
        };
        // Together: each is written down before it counts.
        join_all(
            requests
                .iter()
                .filter(waits)
                .map(|id| visit.cancel(&key.account, id)),
        )
        .await;
    }
    Ok(said(&app.told(&key, &batch)))
}

/// `GET /v2/{endpoint}/batch`: newest first.
pub(super) async fn list(visitor: ClientRequest) -> Result<Response, ApiError> {
    let visit = visitor.enter(Asked::Requests)?;
    let app = &visitor.app;
    let mut all = app
        .config
        .batches
        .shelf
        .of(&visitor.caller.account, &visit.name)
        .await?;
    all.sort_by_key(|(_, batch)| std::cmp::Reverse(batch.created_at));
    Ok(said(&Listed {
        batches: all
            .iter()
            .map(|(key, batch)| app.told(key, batch))
            .collect(),
    }))
}

/// `GET /v2/{endpoint}/batch/{id}`
pub(super) async fn get(visitor: ClientRequest) -> Result<Response, ApiError> {
    let _visit = visitor.enter(Asked::Status)?;
    let app = &visitor.app;
    let (key, batch) = app.batch(&visitor).await?;
    Ok(said(&app.told(&key, &batch)))
}

/// `GET /v2/{endpoint}/batch/{id}/requests?offset=N&limit=N`
pub(super) async fn requests(visitor: ClientRequest) -> Result<Response, ApiError> {
    let visit = visitor.enter(Asked::Status)?;
    let app = &visitor.app;
    let question = Question::of(&visitor.uri);
    let (offset, limit) = (
        question.number("offset", 0)?,
        question.number("limit", LISTED)?.clamp(1, MOST_LISTED),
    );
    let (key, batch) = app.batch(&visitor).await?;
    let mut requests = Vec::new();
    for number in batch.numbers().skip(offset).take(limit) {
        let id = key.request(number);
        let json = match app.config.batches.shelf.request(&key, number).await? {
            None => continue,
            Some(Request::Over(told)) => told,
            Some(Request::Wanted(wanted)) if batch.state == State::Draft => {
                raw(&draft(&id, &wanted))?
            }
            Some(Request::Wanted(_)) => match visit.jobs.known(&key.account, &id) {
                Some(job) => raw(&render::told(&job.snapshot()))?,
                None => raw(&render::summary(id.as_str(), "IN_QUEUE"))?,
            },
        };
        requests.push(json);
    }
    Ok(said(&Requests {
        requests,
        total: batch.total(),
        offset,
        limit,
    }))
}

impl ClientRequest {
    fn key(&self, id: String) -> Key {
        Key {
            account: self.caller.account.clone(),
            endpoint: self.endpoint.clone(),
            id,
        }
    }
}

impl AppState {
    async fn given(&self, body: Body) -> Result<Given, ApiError> {
        let body = self.body(body, self.config.max_body).await?;
        if body.trim_ascii_start().starts_with(b"[") {
            let requests = serde_json::from_slice(&body).map_err(BodyParseError::Syntax)?;
            return Ok(Given {
                name: None,
                requests,
            });
        }
        Ok(parse_object(&body)?.unwrap_or_default())
    }

    /// Adds requests to a draft, which may be new. All of them or none.
    async fn add(
        &self,
        key: &Key,
        batch: &mut Batch,
        requests: Vec<Box<RawValue>>,
    ) -> Result<Response, ApiError> {
        if batch.total() + requests.len() > MOST_REQUESTS {
            return Err(ApiError::Unusable(format!(
                "a batch has at most {MOST_REQUESTS} requests; make another for the rest"
            )));
        }
        for (place, request) in requests.iter().enumerate() {
            checked(&Bytes::copy_from_slice(request.get().as_bytes()))
                .map_err(|trouble| ApiError::Unusable(format!("requests[{place}]: {trouble}")))?;
        }
        let shelf = &self.config.batches.shelf;
        let numbered: Vec<_> = requests
            .into_iter()
            .map(|request| (batch.one_more(), Request::Wanted(request)))
            .collect();
        // Together, because a store commits together what it is given at once.
        try_join_all(
            numbered
                .iter()
                .map(|(number, request)| shelf.put_request(key, *number, request)),
        )
        .await?;
        // Last: requests that the batch does not know are nobody's, and written over by the next.
        shelf.put(key, batch).await?;
        let added = numbered
            .iter()
            .map(|(number, _)| Id {
                id: key.request(*number),
            })
            .collect();
        Ok(said(&Added {
            batch: self.told(key, batch),
            requests: added,
        }))
    }

    async fn batch(&self, visitor: &ClientRequest) -> Result<(Key, Batch), ApiError> {
        let key = visitor.key(visitor.id.clone());
        match self.config.batches.shelf.get(&key).await? {
            Some(batch) => Ok((key, batch)),
            None => Err(ApiError::NoSuchBatch(key.id.chars().take(100).collect())),
        }
    }

    async fn draft(&self, visitor: &ClientRequest) -> Result<(Key, Batch), ApiError> {
        let (key, batch) = self.batch(visitor).await?;
        match batch.state {
            State::Draft => Ok((key, batch)),
            State::Finalized | State::Cancelled => Err(ApiError::Conflict(
                "the batch is no draft any more and cannot be changed".to_owned(),
            )),
        }
    }

    fn told(&self, key: &Key, batch: &Batch) -> Told {
        let tally = self.config.batches.tally(key).unwrap_or(batch.tally);
        let over = tally.completed + tally.failed + tally.cancelled;
        let runs = batch.state != State::Draft && batch.is_active();
        let in_progress = if runs {
            self.in_progress(key, batch)
        } else {
            0
        };
        Told {
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

    fn in_progress(&self, key: &Key, batch: &Batch) -> usize {
        let Some(endpoint) = self.endpoints.get(&key.endpoint) else {
            return 0;
        };
        let runs = |number| {
            let status = endpoint
                .jobs
                .known(&key.account, &key.request(number))
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
        .field("status", &State::Draft)
        .raw("input", input.as_ref())
        .finish()
}

/// A request that can be run.
fn checked(body: &Bytes) -> Result<Box<RawValue>, ApiError> {
    Wanted::read(body)?;
    raw(body)
}

fn raw(json: &[u8]) -> Result<Box<RawValue>, ApiError> {
    Ok(serde_json::from_slice(json).map_err(BodyParseError::Syntax)?)
}

fn number(key: &Key, batch: &Batch, request: &str) -> Result<u32, ApiError> {
    let found = batch
        .numbers()
        .find(|number| key.request(*number).as_str() == request);
    found.ok_or_else(|| ApiError::NoSuchJob(request.chars().take(100).collect()))
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = %tidegate_core::chain(&error), "a batch cannot be kept or read");
        Self::Store
    }
}
