//! The models that are served, and their versions.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;
use tidegate_service::{JobService, ModelSchema, ServedVersion};

use super::drafts::{self, Shown};
use super::origin::Origin;
use super::reply::{self, Trouble};
use super::voice::moment;
use super::{Face, Shared, wire};
use crate::access::Identity;
use crate::cog::COG_VERSION;
use crate::shared::body_limit::{BodyLimit, read_body};

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
    Ok(reply::ok(&drafts::listed(
        served,
        &drafts,
        query.as_deref().unwrap_or_default(),
        &origin,
    )?))
}

/// `QUERY /v1/models`: those whose name or description holds the text. Python's client sends it bare, npm's as a
/// JSON string.
pub(super) async fn search(
    State(face): State<Shared>,
    caller: Identity,
    origin: Origin,
    request: Request,
) -> Response {
    if request.method().as_str() != QUERY {
        return reply::wrong_method(request.method(), request.uri());
    }
    found(&face, &caller, &origin, request.into_body())
        .await
        .unwrap_or_else(Trouble::into_response)
}

async fn found(
    face: &Face,
    caller: &Identity,
    origin: &Origin,
    body: Body,
) -> Result<Response, Trouble> {
    let body = read_body(
        body,
        BodyLimit {
            max_bytes: 16 * 1024,
            stall_timeout: face.config.body_timeout,
        },
    )
    .await?;
    let text = serde_json::from_slice(&body)
        .unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned());
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
    match face.served_as(&owner, &name) {
        Some(version) => Ok(reply::ok(&Served::of(version).model(&origin)?)),
        None => Ok(reply::ok(
            &face
                .shown(face.draft(&caller, &owner, &name).await?)
                .written(&origin)?,
        )),
    }
}

/// `GET /v1/models/{owner}/{name}/versions`
pub(super) async fn versions(
    State(face): State<Shared>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, Trouble> {
    face.check_known(&caller, &owner, &name).await?;
    let versions = face
        .all_versions(&caller, &owner, &name)
        .await?
        .into_iter()
        .map(Served::of);
    let versions: Vec<Served> = versions.filter(|served| served.schema.is_some()).collect();
    if versions.is_empty() && face.desk(&owner, &name).is_some() {
        return Err(Trouble::NoSchema);
    }
    Ok(reply::ok(&wire::Page::only(
        versions
            .iter()
            .map(Served::version)
            .collect::<Result<_, _>>()?,
    )))
}

/// `GET /v1/models/{owner}/{name}/versions/{version}`
pub(super) async fn version(
    State(face): State<Shared>,
    Path((owner, name, version)): Path<(String, String, String)>,
    caller: Identity,
) -> Result<Response, Trouble> {
    face.check_known(&caller, &owner, &name).await?;
    let mut versions = face.all_versions(&caller, &owner, &name).await?.into_iter();
    let version = versions
        .find(|known| known.id() == version)
        .ok_or(Trouble::Unknown("version"))?;
    Ok(reply::ok(&Served::of(version).version()?))
}

impl Face {
    /// The version of a model that is served here.
    pub(super) fn served_as(&self, owner: &str, name: &str) -> Option<Arc<ServedVersion>> {
        Some(self.models.get(&format!("{owner}/{name}"))?.now())
    }

    /// The desk of a model that is served here.
    pub(super) fn desk(&self, owner: &str, name: &str) -> Option<JobService> {
        Some(self.models.get(&format!("{owner}/{name}"))?.jobs())
    }

    /// The models that are served here.
    pub(super) fn served(&self) -> Vec<Served> {
        self.models
            .all()
            .iter()
            .map(|model| Served::of(model.now()))
            .collect()
    }

    /// Those that are served, and those that callers have made.
    pub(super) fn models<'a>(
        &'a self,
        served: &'a [Served],
        drafts: &'a [Shown],
        origin: &Origin,
    ) -> Result<Vec<wire::Model<'a>>, Trouble> {
        let served = served.iter().map(|served| served.model(origin));
        served
            .chain(drafts.iter().map(|shown| shown.written(origin)))
            .collect()
    }
}

/// One version of a model that is served here, and what is known of it.
pub(super) struct Served {
    version: Arc<ServedVersion>,
    /// Nothing while it has not been loaded.
    schema: Option<Arc<ModelSchema>>,
}

impl Served {
    pub(super) fn of(version: Arc<ServedVersion>) -> Self {
        Self {
            schema: version.jobs.description(),
            version,
        }
    }

    /// The model; without a version while it is not loaded.
    fn model(&self, origin: &Origin) -> Result<wire::Model<'_>, Trouble> {
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
            latest_version: self.known_version()?,
        })
    }

    /// The version, if enough is known to show it.
    pub(super) fn known_version(&self) -> Result<Option<wire::Version<'_>>, Trouble> {
        self.schema.is_some().then(|| self.version()).transpose()
    }

    fn version(&self) -> Result<wire::Version<'_>, Trouble> {
        let schema = self.schema.as_ref().ok_or(Trouble::NoSchema)?;
        Ok(wire::Version {
            id: self.version.id(),
            created_at: moment(self.version.created_at),
            cog_version: COG_VERSION,
            openapi_schema: serde_json::from_slice::<&RawValue>(&schema.document)
                .map_err(|_| Trouble::NoSchema)?,
        })
    }
}
