//! A model in the format of OpenAI's API.

use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tidegate_service::{ModelRegistry, ServedModel};

use super::error::OpenAiError;
use crate::inference::find_model;
use crate::shared::response::json;

/// A model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OpenAiModel {
    /// `owner/name`
    pub(crate) id: String,
    pub(crate) object: &'static str,
    /// When its files were last modified, in seconds since 1970.
    pub(crate) created: i64,
    pub(crate) owned_by: String,
}

impl OpenAiModel {
    /// A model that is served.
    pub(crate) fn of(model: &ServedModel) -> Self {
        let (owner, _) = model.name().split_once('/').unwrap_or_default();
        Self {
            id: model.name().to_owned(),
            object: "model",
            created: model.current().created_at.as_second(),
            owned_by: owner.to_owned(),
        }
    }
}

/// The response to a request for one model.
pub(crate) fn model_response(models: &ModelRegistry, name: &str) -> Result<Response, OpenAiError> {
    let Some(model) = find_model(models, name) else {
        return Err(not_found(models, name));
    };
    let body = serde_json::to_vec(&OpenAiModel::of(&model)).expect("answers have string keys");
    Ok(json(StatusCode::OK, body.into()))
}

/// The error for a model that does not exist.
pub(super) fn not_found(models: &ModelRegistry, name: &str) -> OpenAiError {
    let served = models.all();
    let served: Vec<&str> = served.iter().map(|model| model.name()).collect();
    OpenAiError::model_not_found(name, &served)
}
