//! The models of this server in the catalogue of the Workers AI API.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use tidegate_core::model_interface::ModelTask;
use tidegate_service::ServedModel;
use url::form_urlencoded;

use super::AppState;
use super::error::WorkersAiError;
use super::wire::{Envelope, ModelItem, ModelPage, ModelSchemas, PageInfo, TaskItem};
use crate::inference::find_model;
use crate::shared::response::json;

const DEFAULT_PER_PAGE: usize = 50;
const MAX_PER_PAGE: usize = 1000;

/// `GET …/ai/models/search`
pub(super) async fn search(
    State(state): State<Arc<AppState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, WorkersAiError> {
    let query = query.unwrap_or_default();
    let wanted = |name: &str| parameter(&query, name).map(|text| text.to_lowercase());
    let (search, author, task) = (wanted("search"), wanted("author"), wanted("task"));
    let matches = |item: &ModelItem| {
        let has = |text: &str, part: &Option<String>| {
            part.as_ref()
                .is_none_or(|part| text.to_lowercase().contains(part))
        };
        let owner = item.name.split('/').next().unwrap_or_default();
        let text = format!("{} {}", item.name, item.description);
        has(&text, &search) && has(owner, &author) && has(item.task.name, &task)
    };
    let models = state.models.all();
    let found: Vec<ModelItem> = models
        .iter()
        .map(|model| item(model))
        .filter(matches)
        .collect();
    let page = number(&query, "page", 1)?.max(1);
    let per_page = number(&query, "per_page", DEFAULT_PER_PAGE)?.clamp(1, MAX_PER_PAGE);
    let total_count = found.len();
    let result: Vec<ModelItem> = found
        .into_iter()
        .skip((page - 1).saturating_mul(per_page))
        .take(per_page)
        .collect();
    let result_info = PageInfo {
        count: result.len(),
        page,
        per_page,
        total_count,
    };
    Ok(ok(&ModelPage {
        result,
        success: true,
        errors: [],
        messages: [],
        result_info,
    }))
}

/// `GET …/ai/models/schema?model=NAME`
pub(super) async fn schema(
    State(state): State<Arc<AppState>>,
    RawQuery(query): RawQuery,
) -> Result<Response, WorkersAiError> {
    let query = query.unwrap_or_default();
    let name = parameter(&query, "model")
        .ok_or_else(|| WorkersAiError::invalid("the query has no `model`"))?;
    let model =
        find_model(&state.models, &name).ok_or_else(|| WorkersAiError::model_not_found(&name))?;
    let schema = model.jobs().description().ok_or_else(|| {
        WorkersAiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            super::error::OUT_OF_CAPACITY,
            "the model is not loaded yet; try again in a moment",
        )
    })?;
    let document: Value = serde_json::from_slice(&schema.document).unwrap_or_default();
    let component = |name: &str| {
        let pointer = format!("/components/schemas/{name}");
        document.pointer(&pointer).cloned().unwrap_or_default()
    };
    let schemas = ModelSchemas {
        input: component("Input"),
        output: component("Output"),
    };
    Ok(json(StatusCode::OK, Envelope::of(schemas)))
}

fn item(model: &ServedModel) -> ModelItem {
    let version = model.current();
    let task = version
        .jobs
        .description()
        .map_or(ModelTask::Other, |schema| schema.interface.task());
    ModelItem {
        id: version.id().to_owned(),
        name: model.name().to_owned(),
        description: version.description.clone().unwrap_or_default(),
        source: 1,
        task: TaskItem {
            id: task_name(task),
            name: task_name(task),
            description: "",
        },
        tags: [],
        properties: [],
        created_at: version.created_at.to_string(),
    }
}

fn task_name(task: ModelTask) -> &'static str {
    match task {
        ModelTask::TextGeneration => "Text Generation",
        ModelTask::TextEmbeddings => "Text Embeddings",
        ModelTask::Other => "Other",
    }
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let mut values = form_urlencoded::parse(query.as_bytes());
    let (_, value) = values.find(|(key, _)| key == name)?;
    Some(value.into_owned()).filter(|value| !value.is_empty())
}

fn number(query: &str, name: &str, default: usize) -> Result<usize, WorkersAiError> {
    match parameter(query, name) {
        None => Ok(default),
        Some(text) => text
            .parse()
            .map_err(|_| WorkersAiError::invalid(format!("`{name}` must be a number"))),
    }
}

fn ok(document: &impl Serialize) -> Response {
    let body = serde_json::to_vec(document).expect("answers have string keys");
    json(StatusCode::OK, body.into())
}
