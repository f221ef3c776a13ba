//! The operators' API of a cluster: lists, adds and removes endpoints, and prints the environment of a worker, at
//! every process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{RawPathParams, Request, State};
use axum::http::{Extensions, HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tidegate_net::Url;

use super::forward::FORWARDED;
use super::{ClusterConfig, EndpointPlace, OwnedRoutes, endpoint_name};
use crate::runpod::platform::clients::ok_json;
use crate::runpod::platform::endpoint_admin::{
    AddEndpointBody, EndpointEntry, EndpointListJson, MAX_BODY, worker_env,
};
use crate::runpod::platform::endpoints::register_endpoint;
use crate::runpod::platform::reply::ApiError;
use crate::shared::body_limit::{BodyLimit, read_body};
use crate::shared::parse_body::parse_object;

/// The path of the list.
const LIST: &str = "/admin/endpoints";
/// The longest list of one process, in bytes.
const MAX_LIST: usize = 16 * 1024 * 1024;
/// How long other processes have to answer.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a new endpoint may take until it has an owner.
const OWNER_TIMEOUT: Duration = Duration::from_secs(10);

/// `GET /admin/endpoints`: the endpoints of this process, and those of the others unless another process asks.
pub(super) async fn list(State(app): State<Arc<ClusterConfig>>, request: Request) -> Response {
    let (caller, _) = request.into_parts();
    let mut endpoints = app.entries_here(&caller.extensions).await;
    if !caller.headers.contains_key(FORWARDED) {
        let there = app.entries_there(&caller.headers).await;
        endpoints.extend(there.into_iter().map(|entry| (entry.name.clone(), entry)));
        for name in app.directory.all().keys() {
            if !endpoints.contains_key(name) {
                endpoints.insert(name.clone(), EndpointEntry::empty(name));
            }
        }
    }
    let endpoints = endpoints.into_values().map(|entry| app.with_url(entry));
    ok_json(&EndpointListJson {
        endpoints: endpoints.collect(),
    })
}

/// `POST /admin/endpoints` with `{"name": …}`. Responds when the endpoint has an owner.
pub(super) async fn add(
    State(app): State<Arc<ClusterConfig>>,
    body: Body,
) -> Result<Response, ApiError> {
    let limit = BodyLimit {
        max_bytes: MAX_BODY,
        max_bytes_flag: None,
        stall_timeout: app.body_timeout,
        stall_flag: None,
    };
    let body = read_body(body, limit).await?;
    let AddEndpointBody { name } = parse_object(&body)?
        .ok_or_else(|| ApiError::InvalidRequest("the body has no `name`".to_owned()))?;
    register_endpoint(&*app.documents, &name).await?;
    app.directory.refresh();
    tokio::time::timeout(OWNER_TIMEOUT, app.directory.until_owned(&name))
        .await
        .map_err(|_| ApiError::NoOwner)?;
    Ok(ok_json(&app.with_url(EndpointEntry::empty(&name))))
}

/// `POST /admin/endpoints/{endpoint}/remove`, at the owner.
pub(super) async fn remove(
    State(app): State<Arc<ClusterConfig>>,
    params: RawPathParams,
    request: Request,
) -> Response {
    let response = app.serve(&endpoint_name(&params), request).await;
    if response.status().is_success() {
        app.directory.refresh();
    }
    response
}

/// `GET /admin/endpoints/{endpoint}/env`: a worker may use every process.
pub(super) async fn env(
    State(app): State<Arc<ClusterConfig>>,
    params: RawPathParams,
) -> Result<Response, ApiError> {
    let name = endpoint_name(&params);
    if app.directory.place(&name).is_none() {
        return Err(ApiError::NoSuchEndpoint(name.chars().take(100).collect()));
    }
    Ok(worker_env(&app.base_url, app.worker_keys.as_ref(), &name))
}

impl ClusterConfig {
    fn with_url(&self, mut entry: EndpointEntry) -> EndpointEntry {
        entry.url = format!("{}/v2/{}", self.base_url, entry.name);
        entry
    }

    /// The endpoints that this process owns.
    async fn entries_here(&self, caller: &Extensions) -> BTreeMap<String, EndpointEntry> {
        let all = self.directory.all();
        let owned = all.values().filter_map(|place| match place {
            EndpointPlace::Here(owned) => Some(entries_of(owned, caller)),
            EndpointPlace::There(_) | EndpointPlace::Nowhere => None,
        });
        let lists = join_all(owned).await;
        let entries = lists.into_iter().flatten();
        entries.map(|entry| (entry.name.clone(), entry)).collect()
    }

    /// The endpoints that other processes own, as far as they answer.
    async fn entries_there(&self, headers: &HeaderMap) -> Vec<EndpointEntry> {
        let mut owners: Vec<Url> = Vec::new();
        for place in self.directory.all().values() {
            match place {
                EndpointPlace::There(owner) if !owners.contains(&owner.url) => {
                    owners.push(owner.url.clone());
                }
                _ => {}
            }
        }
        let lists = owners.iter().map(|owner| async move {
            let list = self.list_of(owner, headers);
            let list = tokio::time::timeout(LIST_TIMEOUT, list).await;
            list.ok().flatten().unwrap_or_default()
        });
        join_all(lists).await.into_iter().flatten().collect()
    }

    async fn list_of(&self, owner: &Url, headers: &HeaderMap) -> Option<Vec<EndpointEntry>> {
        let mut request = list_request();
        *request.headers_mut() = headers.clone();
        let response = self.send(owner, request).await?;
        if response.status() != StatusCode::OK {
            return None;
        }
        let mut body = Vec::new();
        let mut parts = std::pin::pin!(response.into_body());
        while let Some(part) = parts.next().await {
            body.extend_from_slice(&part.ok()?);
            if body.len() > MAX_LIST {
                return None;
            }
        }
        let list: EndpointListJson = serde_json::from_slice(&body).ok()?;
        Some(list.endpoints)
    }
}

fn list_request() -> Request {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::GET;
    *request.uri_mut() = Uri::from_static(LIST);
    request
}

/// The entry of an endpoint of this process.
async fn entries_of(owned: &OwnedRoutes, caller: &Extensions) -> Vec<EndpointEntry> {
    let mut request = list_request();
    request.extensions_mut().clone_from(caller);
    let Some(response) = owned.serve(request).await else {
        return Vec::new();
    };
    let body = axum::body::to_bytes(response.into_body(), MAX_LIST).await;
    let list = body
        .ok()
        .and_then(|body| serde_json::from_slice::<EndpointListJson>(&body).ok());
    list.map(|list| list.endpoints).unwrap_or_default()
}
