//! The one model, and its one version.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;
use tidegate_service::{Jobs, ModelSchema};

use super::drafts::{self, Draft};
use super::origin::Origin;
use super::reply::{self, Trouble};
use super::voice::moment;
use super::{Face, Shared, wire};
use crate::access::Identity;
use crate::cog::COG_VERSION;
use crate::shared::body::{Bounds, whole};

/// The method of searches; no library has a name for it.
const QUERY: &str = "QUERY";

/// `GET /v1/models`
pub(super) async fn list(
    State(face): State<Shared>,
    RawQuery(query): RawQuery,
    caller: Identity,
    origin: Origin,
) -> Result<Response, Trouble> {
    let (served, drafts) = (face.served(), face.all_drafts(&caller).await?);
    let served = face.models(&served, &[], &origin)?;
    Ok(reply::ok(&drafts::listed(served, &drafts, query.as_deref().unwrap_or_default(), &origin)))
}

/// `QUERY /v1/models`: those whose name or description holds the text. Python's client sends it bare, npm's as a
/// JSON string.
pub(super) async fn search(State(face): State<Shared>, caller: Identity, origin: Origin, request: Request) -> Response {
    if request.method().as_str() != QUERY {
        return reply::wrong_method(request.method(), request.uri());
    }
    found(&face, &caller, &origin, request.into_body()).await.unwrap_or_else(Trouble::into_response)
}

async fn found(face: &Face, caller: &Identity, origin: &Origin, body: Body) -> Result<Response, Trouble> {
    let body = whole(body, Bounds { size: 16 * 1024, stall: face.config.body_timeout }).await?;
    let text = serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned());
    let (served, drafts) = (face.served(), face.all_drafts(caller).await?);
    let mut models = face.models(&served, &drafts, origin)?;
    models.retain(|model| model.says(&text));
    Ok(reply::ok(&wire::Page::only(models)))
}

/// `GET /v1/models/{owner}/{name}`
pub(super) async fn show(
    State(face): State<Shared>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
    origin: Origin,
) -> Result<Response, Trouble> {
    if face.desk(&owner, &name).is_none() {
        return Ok(reply::ok(&face.draft(&caller, &owner, &name).await?.written(&origin)));
    }
    Ok(reply::ok(&face.model(&origin, face.jobs.description().as_deref())?))
}

/// `GET /v1/models/{owner}/{name}/versions`
pub(super) async fn versions(
    State(face): State<Shared>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, Trouble> {
    if face.desk(&owner, &name).is_none() {
        face.draft(&caller, &owner, &name).await?;
        return Ok(reply::ok(&wire::Page::<()>::only(Vec::new())));
    }
    let schema = face.jobs.description().ok_or(Trouble::NoSchema)?;
    Ok(reply::ok(&wire::Page::only(vec![face.version(&schema)?])))
}

/// `GET /v1/models/{owner}/{name}/versions/{version}`
pub(super) async fn version(
    State(face): State<Shared>,
    Path((owner, name, version)): Path<(String, String, String)>,
) -> Result<Response, Trouble> {
    face.know_model(&owner, &name)?;
    if version != face.jobs.target().version {
        return Err(Trouble::Unknown("version"));
    }
    let schema = face.jobs.description().ok_or(Trouble::NoSchema)?;
    Ok(reply::ok(&face.version(&schema)?))
}

impl Face {
    /// The desk of a model that is served here.
    pub(super) fn desk(&self, owner: &str, name: &str) -> Option<&Jobs> {
        (self.jobs.target().model.split_once('/') == Some((owner, name))).then_some(&self.jobs)
    }

    /// Refuses names of other models.
    pub(super) fn know_model(&self, owner: &str, name: &str) -> Result<(), Trouble> {
        self.desk(owner, name).map(|_| ()).ok_or(Trouble::Unknown("model"))
    }

    /// What is known of the models that are served here.
    pub(super) fn served(&self) -> Option<Arc<ModelSchema>> {
        self.jobs.description()
    }

    /// Those that are served, and those that callers have made.
    pub(super) fn models<'a>(
        &'a self,
        served: &'a Option<Arc<ModelSchema>>,
        drafts: &'a [Draft],
        origin: &Origin,
    ) -> Result<Vec<wire::Model<'a>>, Trouble> {
        let served = self.model(origin, served.as_deref())?;
        Ok(std::iter::once(served).chain(drafts.iter().map(|draft| draft.written(origin))).collect())
    }

    /// The model; without a version while it is not loaded.
    fn model<'a>(&'a self, origin: &Origin, schema: Option<&'a ModelSchema>) -> Result<wire::Model<'a>, Trouble> {
        let model = &self.jobs.target().model;
        let (owner, name) = model.split_once('/').unwrap_or(("", model));
        Ok(wire::Model {
            url: origin.to(&["v1", "models", owner, name]),
            owner,
            name,
            description: None,
            visibility: "private",
            github_url: None,
            paper_url: None,
            license_url: None,
            run_count: 0,
            cover_image_url: None,
            default_example: None,
            latest_version: schema.map(|schema| self.version(schema)).transpose()?,
        })
    }

    fn version<'a>(&'a self, schema: &'a ModelSchema) -> Result<wire::Version<'a>, Trouble> {
        Ok(wire::Version {
            id: &self.jobs.target().version,
            created_at: moment(self.config.model_created_at),
            cog_version: COG_VERSION,
            openapi_schema: serde_json::from_slice::<&RawValue>(&schema.document).map_err(|_| Trouble::NoSchema)?,
        })
    }
}
