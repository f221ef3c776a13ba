//! The one model, and its one version.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Method, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;
use tidegate_service::{Jobs, ModelSchema};

use super::origin::Origin;
use super::reply::{self, Trouble};
use super::voice::moment;
use super::{Face, Shared, wire};
use crate::cog::COG_VERSION;
use crate::shared::body::{Bounds, whole};

/// The method of searches; no library has a name for it.
const QUERY: &str = "QUERY";

/// `GET /v1/models`
pub(super) async fn list(State(face): State<Shared>, origin: Origin) -> Result<Response, Trouble> {
    let schema = face.jobs.schema();
    Ok(reply::ok(&wire::Page::only(vec![face.model(&origin, schema.as_deref())?])))
}

/// `QUERY /v1/models`: those whose names hold the text. Python's client sends it bare, npm's as a JSON string.
pub(super) async fn search(State(face): State<Shared>, method: Method, uri: Uri, origin: Origin, body: Body) -> Response {
    if method.as_str() != QUERY {
        return reply::wrong_method(&method, &uri);
    }
    found(&face, &origin, body).await.unwrap_or_else(Trouble::into_response)
}

async fn found(face: &Face, origin: &Origin, body: Body) -> Result<Response, Trouble> {
    let body = whole(body, Bounds { size: 16 * 1024, stall: face.config.body_timeout }).await?;
    let text = serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned());
    let matches = face.jobs.target().model.to_lowercase().contains(&text.trim().to_lowercase());
    let schema = face.jobs.schema();
    let results = if matches { vec![face.model(origin, schema.as_deref())?] } else { Vec::new() };
    Ok(reply::ok(&wire::Page::only(results)))
}

/// `GET /v1/models/{owner}/{name}`
pub(super) async fn show(
    State(face): State<Shared>,
    Path((owner, name)): Path<(String, String)>,
    origin: Origin,
) -> Result<Response, Trouble> {
    face.know_model(&owner, &name)?;
    Ok(reply::ok(&face.model(&origin, face.jobs.schema().as_deref())?))
}

/// `GET /v1/models/{owner}/{name}/versions`
pub(super) async fn versions(State(face): State<Shared>, Path((owner, name)): Path<(String, String)>) -> Result<Response, Trouble> {
    face.know_model(&owner, &name)?;
    let schema = face.jobs.schema().ok_or(Trouble::NoSchema)?;
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
    let schema = face.jobs.schema().ok_or(Trouble::NoSchema)?;
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
