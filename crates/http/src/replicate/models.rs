//! The models of this server and their versions.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;
use tidegate_service::{JobService, ModelSchema, ServedVersion};

use super::origin::Origin;
use super::render::timestamp;
use super::reply::{self, ApiError};
use super::user_models::{self, UserModelView};
use super::{AppState, wire};
use crate::access::Identity;
use crate::cog::COG_VERSION;
use crate::openai::{self, OpenAiModel};
use crate::shared::body_limit::{BodyLimit, read_body};

/// The HTTP method of searches, for which the library has no constant.
const QUERY: &str = "QUERY";

/// `GET /v1/models`
pub(super) async fn list(
    State(state): State<Arc<AppState>>,
    RawQuery(query): RawQuery,
    caller: Identity,
    origin: Origin,
) -> Result<Response, ApiError> {
    let (served, user_models) = (state.served(), state.all_user_models(&caller).await?);
    let served = state.models(&served, &[], &origin)?;
    let page = user_models::page_of_models(
        served,
        &user_models,
        query.as_deref().unwrap_or_default(),
        &origin,
    )?;
    let models = state.models.all();
    Ok(reply::ok(&wire::ModelList {
        page,
        object: "list",
        data: models.iter().map(|model| OpenAiModel::of(model)).collect(),
    }))
}

/// `GET /v1/models/{id}` of OpenAI's API: the name of the model in one segment.
pub(super) async fn show_for_openai(
    State(state): State<Arc<AppState>>,
    Path(id): Path<String>,
) -> Response {
    openai::model_response(&state.models, &id).unwrap_or_else(IntoResponse::into_response)
}

/// `QUERY /v1/models`: models whose name or description contains the text. Python's client sends it
/// as plain text, npm's as a JSON string.
pub(super) async fn search(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    origin: Origin,
    request: Request,
) -> Response {
    if request.method().as_str() != QUERY {
        return reply::method_not_allowed_for(request.method(), request.uri());
    }
    search_models(&state, &caller, &origin, request.into_body())
        .await
        .unwrap_or_else(ApiError::into_response)
}

async fn search_models(
    state: &AppState,
    caller: &Identity,
    origin: &Origin,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read_body(
        body,
        BodyLimit {
            max_bytes_flag: None,
            ..BodyLimit::of_flags(16 * 1024, state.config.body_timeout)
        },
    )
    .await?;
    let text = serde_json::from_slice(&body)
        .unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned());
    let (served, user_models) = (state.served(), state.all_user_models(caller).await?);
    let mut models = state.models(&served, &user_models, origin)?;
    models.retain(|model| model.matches(&text));
    Ok(reply::ok(&wire::Page::only(models)))
}

/// `GET /v1/models/{owner}/{name}`
pub(super) async fn show(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
    origin: Origin,
) -> Result<Response, ApiError> {
    match state.served_version(&owner, &name) {
        Some(version) => {
            let view = VersionView::new(version);
            let model = state.models.get(&format!("{owner}/{name}"));
            Ok(reply::ok(&wire::OneModel {
                model: view.model(&origin)?,
                openai: model.map(|model| OpenAiModel::of(&model)),
            }))
        }
        None => {
            let model = state.user_model(&caller, &owner, &name).await?;
            state.models.refresh_trained_models().await?;
            Ok(reply::ok(&state.view_of(model).render(&origin)?))
        }
    }
}

/// `GET /v1/models/{owner}/{name}/versions`
pub(super) async fn versions(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    state.check_model_visible(&caller, &owner, &name).await?;
    let versions = state
        .all_versions(&caller, &owner, &name)
        .await?
        .into_iter()
        .map(VersionView::new);
    let versions: Vec<VersionView> = versions.filter(|served| served.schema.is_some()).collect();
    if versions.is_empty() && state.job_service(&owner, &name).is_some() {
        return Err(ApiError::ModelNotLoaded);
    }
    Ok(reply::ok(&wire::Page::only(
        versions
            .iter()
            .map(VersionView::version)
            .collect::<Result<_, _>>()?,
    )))
}

/// `GET /v1/models/{owner}/{name}/versions/{version}`
pub(super) async fn version(
    State(state): State<Arc<AppState>>,
    Path((owner, name, version)): Path<(String, String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    state.check_model_visible(&caller, &owner, &name).await?;
    let mut versions = state
        .all_versions(&caller, &owner, &name)
        .await?
        .into_iter();
    let version = versions
        .find(|known| known.id() == version)
        .ok_or(ApiError::Unknown("version"))?;
    Ok(reply::ok(&VersionView::new(version).version()?))
}

impl AppState {
    /// The current version of a model that is served from a folder.
    pub(super) fn served_version(&self, owner: &str, name: &str) -> Option<Arc<ServedVersion>> {
        Some(self.models.get(&format!("{owner}/{name}"))?.current())
    }

    /// The job service of a model that is served from a folder.
    pub(super) fn job_service(&self, owner: &str, name: &str) -> Option<JobService> {
        Some(self.models.get(&format!("{owner}/{name}"))?.jobs())
    }

    /// The models that are served from folders.
    pub(super) fn served(&self) -> Vec<VersionView> {
        self.models
            .all()
            .iter()
            .map(|model| VersionView::new(model.current()))
            .collect()
    }

    /// Renders the models that are served from folders and those that users created.
    pub(super) fn models<'a>(
        &'a self,
        served: &'a [VersionView],
        user_models: &'a [UserModelView],
        origin: &Origin,
    ) -> Result<Vec<wire::Model<'a>>, ApiError> {
        let served = served.iter().map(|served| served.model(origin));
        served
            .chain(user_models.iter().map(|view| view.render(origin)))
            .collect()
    }
}

/// A version of a model, with its schema.
pub(super) struct VersionView {
    version: Arc<ServedVersion>,
    /// `None` until the model has been loaded once.
    schema: Option<Arc<ModelSchema>>,
}

impl VersionView {
    pub(super) fn new(version: Arc<ServedVersion>) -> Self {
        Self {
            schema: version.jobs.description(),
            version,
        }
    }

    /// Renders the model; without a version until it has been loaded.
    fn model(&self, origin: &Origin) -> Result<wire::Model<'_>, ApiError> {
        let model = &self.version.jobs.target().model;
        let (owner, name) = model.split_once('/').unwrap_or(("", model));
        Ok(wire::Model {
            url: origin.to(&["v1", "models", owner, name]),
            owner,
            name,
            description: self.version.description.as_deref(),
            visibility: "private",
            github_url: None,
            paper_url: None,
            license_url: None,
            run_count: 0,
            cover_image_url: None,
            default_example: None,
            latest_version: self.version_if_loaded()?,
        })
    }

    /// Renders the version if its schema is known.
    pub(super) fn version_if_loaded(&self) -> Result<Option<wire::Version<'_>>, ApiError> {
        self.schema.is_some().then(|| self.version()).transpose()
    }

    fn version(&self) -> Result<wire::Version<'_>, ApiError> {
        let schema = self.schema.as_ref().ok_or(ApiError::ModelNotLoaded)?;
        Ok(wire::Version {
            id: self.version.id(),
            created_at: timestamp(self.version.created_at),
            cog_version: COG_VERSION,
            openapi_schema: serde_json::from_slice::<&RawValue>(&schema.document)
                .map_err(|_| ApiError::ModelNotLoaded)?,
        })
    }
}
