//! Asks a backend what it is and which models it has.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde_json::Value;
use tidegate_core::chain;

use crate::fleet::{BackendFlag, BackendKind, HttpVersion};
use crate::outbound::{OutboundClient, OutboundRequest, OutboundResponse};

/// The time for one answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most models of one backend.
const MAX_MODELS: usize = 1000;
/// The longest name of a model.
const MAX_NAME: usize = 256;
/// The title of Cog's own OpenAPI document, which names no model.
const COG_TITLE: &str = "Cog";

/// What a backend told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LearnedBackend {
    pub(crate) kind: BackendKind,
    pub(crate) models: Vec<LearnedModel>,
}

/// A model of a backend.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LearnedModel {
    /// A model with a name.
    Named(String),
    /// The model of a Cog server without a name. Servers with the same schema have the same model.
    Unnamed { schema: u64 },
}

/// A backend could not be asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum LearnError {
    #[error("{0}")]
    NoAnswer(String),
    #[error(
        "`{url}` answers, but is none of the kinds that can be recognized; name its kind: `--backend KIND={url}`"
    )]
    Unknown { url: String },
    #[error(
        "`{url}` is not a server of the kind {kind}, or does not list its models; use a file with `--config`"
    )]
    NotOfKind { url: String, kind: &'static str },
}

/// Asks a backend for its kind, unless the flag names it, and for its models.
pub(super) async fn ask(
    client: &OutboundClient,
    flag: &BackendFlag,
) -> Result<LearnedBackend, LearnError> {
    let backend = Questions { client, flag };
    let learned = match flag.kind {
        None => backend.any_kind().await?,
        Some(BackendKind::OpenAi) => backend.openai().await?,
        Some(BackendKind::Tidegate) => match backend.openai().await? {
            None => backend.cog().await?,
            learned => learned,
        },
        Some(BackendKind::Tgi | BackendKind::Tei) => backend.info().await?,
        Some(BackendKind::Cog) => backend.cog().await?,
        Some(BackendKind::Triton) => backend.triton().await?,
    };
    let url = flag.url.to_string();
    match (learned, flag.kind) {
        (Some(learned), kind) => Ok(LearnedBackend {
            kind: kind.unwrap_or(learned.kind),
            ..learned
        }),
        (None, Some(kind)) => Err(LearnError::NotOfKind {
            url,
            kind: kind.name(),
        }),
        (None, None) => Err(LearnError::Unknown { url }),
    }
}

/// The questions to one backend. Each answers `None` if the backend is not of the kind.
struct Questions<'a> {
    client: &'a OutboundClient,
    flag: &'a BackendFlag,
}

#[derive(Deserialize)]
struct InfoBody {
    model_id: String,
    /// TEI describes its model here; TGI has a text or nothing.
    model_type: Option<Value>,
}

#[derive(Deserialize)]
struct ModelListBody {
    data: Vec<ModelBody>,
    /// Replicate's list of models, which only tidegate has in the same document.
    results: Option<Value>,
}

#[derive(Deserialize)]
struct ModelBody {
    id: String,
}

#[derive(Deserialize)]
struct CogHealthBody {
    #[allow(dead_code, reason = "only its presence counts")]
    status: String,
}

#[derive(Deserialize)]
struct OpenApiBody {
    info: Option<OpenApiInfo>,
    #[serde(default)]
    components: Value,
}

#[derive(Deserialize)]
struct OpenApiInfo {
    title: Option<String>,
}

#[derive(Deserialize)]
struct TritonBody {
    #[allow(dead_code, reason = "only its presence counts")]
    extensions: Vec<String>,
}

#[derive(Deserialize)]
struct TritonModelBody {
    name: String,
    state: Option<String>,
}

impl Questions<'_> {
    /// TGI and TEI are asked first: they also speak OpenAI's API.
    async fn any_kind(&self) -> Result<Option<LearnedBackend>, LearnError> {
        if let Some(learned) = self.info().await? {
            return Ok(Some(learned));
        }
        if let Some(learned) = self.openai().await? {
            return Ok(Some(learned));
        }
        if let Some(learned) = self.cog().await? {
            return Ok(Some(learned));
        }
        self.triton().await
    }

    async fn info(&self) -> Result<Option<LearnedBackend>, LearnError> {
        let info: Option<InfoBody> = self.get("/info").await?.json();
        Ok(info.map(|info| {
            let kind = match info.model_type {
                Some(Value::Object(_)) => BackendKind::Tei,
                Some(_) | None => BackendKind::Tgi,
            };
            LearnedBackend::with_names(kind, [info.model_id])
        }))
    }

    async fn openai(&self) -> Result<Option<LearnedBackend>, LearnError> {
        let list: Option<ModelListBody> = self.get("/v1/models").await?.json();
        Ok(list.map(|list| {
            let kind = match list.results {
                Some(_) => BackendKind::Tidegate,
                None => BackendKind::OpenAi,
            };
            LearnedBackend::with_names(kind, list.data.into_iter().map(|model| model.id))
        }))
    }

    async fn cog(&self) -> Result<Option<LearnedBackend>, LearnError> {
        let health: Option<CogHealthBody> = self.get("/health-check").await?.json();
        if health.is_none() {
            return Ok(None);
        }
        let document: Option<OpenApiBody> = self.get("/openapi.json").await?.json();
        let Some(OpenApiBody { info, components }) = document else {
            return Ok(None);
        };
        let title = info.and_then(|info| info.title);
        let title = title.filter(|title| title != COG_TITLE && is_name(title));
        let model = match title {
            Some(title) => LearnedModel::Named(title),
            None => LearnedModel::Unnamed {
                schema: hash_of(&components),
            },
        };
        Ok(Some(LearnedBackend {
            kind: BackendKind::Cog,
            models: vec![model],
        }))
    }

    async fn triton(&self) -> Result<Option<LearnedBackend>, LearnError> {
        let server: Option<TritonBody> = self.get("/v2").await?.json();
        if server.is_none() {
            return Ok(None);
        }
        let body = Bytes::from_static(b"{}");
        let index = self.send(Method::POST, "/v2/repository/index", Some(body));
        let index: Option<Vec<TritonModelBody>> = index.await?.json();
        let ready = |model: &TritonModelBody| {
            let state = model.state.as_deref();
            state.is_none_or(|state| state == "READY")
        };
        Ok(index.map(|models| {
            let names = models.into_iter().filter(ready).map(|model| model.name);
            LearnedBackend::with_names(BackendKind::Triton, names)
        }))
    }

    async fn get(&self, path: &str) -> Result<OutboundResponse, LearnError> {
        self.send(Method::GET, path, None).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<OutboundResponse, LearnError> {
        let request = OutboundRequest {
            url: &self.flag.url,
            http: HttpVersion::Http1,
            method,
            path,
            headers: &[],
            body,
            timeout: TIMEOUT,
        };
        let response = self.client.send(request).await;
        response.map_err(|error| LearnError::NoAnswer(chain(&error).to_string()))
    }
}

impl LearnedBackend {
    fn with_names(kind: BackendKind, names: impl IntoIterator<Item = String>) -> Self {
        let names = names.into_iter().filter(|name| is_name(name));
        Self {
            kind,
            models: names.take(MAX_MODELS).map(LearnedModel::Named).collect(),
        }
    }
}

/// Names appear in logs, metrics and paths.
fn is_name(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= MAX_NAME && !name.contains(|c: char| c.is_control())
}

fn hash_of(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}
