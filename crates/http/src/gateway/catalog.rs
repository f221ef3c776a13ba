//! The lists of models, in the formats of OpenAI and Workers AI.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use tidegate_router::fleet::FleetModel;

use super::GatewayState;
use super::error::GatewayError;
use super::reply;
use super::route::{ClientApi, query_value};
use crate::shared::response::json;

#[derive(Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<ModelEntry<'a>>,
}

#[derive(Serialize)]
struct ModelEntry<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
}

#[derive(Serialize)]
struct SearchResult<'a> {
    success: bool,
    errors: [(); 0],
    messages: [(); 0],
    result: Vec<FoundModel<'a>>,
    result_info: ResultInfo,
}

#[derive(Serialize)]
struct FoundModel<'a> {
    id: &'a str,
    name: &'a str,
    description: &'static str,
    properties: [(); 0],
    tags: [(); 0],
}

#[derive(Serialize)]
struct ResultInfo {
    count: usize,
    page: usize,
    per_page: usize,
    total_count: usize,
}

fn entry<'a>(state: &GatewayState, id: &'a str) -> ModelEntry<'a> {
    ModelEntry {
        id,
        object: "model",
        created: state.started_at.as_second(),
        owned_by: "tidegate",
    }
}

fn names(model: &Arc<FleetModel>) -> impl Iterator<Item = &str> {
    std::iter::once(model.name.as_str()).chain(model.aliases.iter().map(String::as_str))
}

/// `GET /v1/models`
pub(super) async fn list(State(state): State<Arc<GatewayState>>) -> Response {
    let table = state.registry.table();
    let data = table.fleet().models().iter().flat_map(names);
    let list = ModelList {
        object: "list",
        data: data.map(|id| entry(&state, id)).collect(),
    };
    json(StatusCode::OK, serialize(&list))
}

/// `GET /v1/models/{id}`
pub(super) async fn show(
    State(state): State<Arc<GatewayState>>,
    Path(id): Path<String>,
) -> Response {
    match state.registry.table().fleet().model(&id) {
        Some(_) => json(StatusCode::OK, serialize(&entry(&state, &id))),
        None => {
            let error = GatewayError::UnknownModel(id);
            reply::error_response(ClientApi::OpenAi, &error.reply())
        }
    }
}

/// `GET …/ai/models/search`
pub(super) async fn search(State(state): State<Arc<GatewayState>>, uri: Uri) -> Response {
    let number = |name, default: usize| {
        let value = query_value(&uri, name).and_then(|text| text.parse().ok());
        value.unwrap_or(default).max(1)
    };
    let (page, per_page) = (number("page", 1), number("per_page", 20).min(1000));
    let wanted = query_value(&uri, "search")
        .unwrap_or_default()
        .to_lowercase();
    let table = state.registry.table();
    let models = table.fleet().models().iter();
    let matching: Vec<_> = models
        .filter(|model| names(model).any(|name| name.to_lowercase().contains(&wanted)))
        .collect();
    let shown = matching.iter().skip((page - 1) * per_page).take(per_page);
    let result: Vec<_> = shown
        .map(|model| FoundModel {
            id: &model.name,
            name: &model.name,
            description: "",
            properties: [],
            tags: [],
        })
        .collect();
    let result_info = ResultInfo {
        count: result.len(),
        page,
        per_page,
        total_count: matching.len(),
    };
    let found = SearchResult {
        success: true,
        errors: [],
        messages: [],
        result,
        result_info,
    };
    json(StatusCode::OK, serialize(&found))
}

fn serialize(document: &impl Serialize) -> bytes::Bytes {
    serde_json::to_vec(document)
        .expect("lists are plain structs")
        .into()
}
