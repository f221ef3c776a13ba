//! Makes the request for the endpoint that was chosen: the client's own bytes if the backend speaks the
//! client's API, otherwise a translation.

use axum::http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use bytes::{Bytes, BytesMut};
use tidegate_core::Account;
use tidegate_net::upstream::UpstreamRequestBody;
use tidegate_router::RequestId;
use tidegate_router::backend::{self, CallContext};
use tidegate_router::body_scan::ScannedBody;
use tidegate_router::fleet::{BackendKind, EndpointConfig};
use tidegate_router::forward::{CallPlanner, PlanError, PlannedCall};

use super::form_model::FormModel;
use super::request_body::RequestBody;
use super::route::{InferenceOperation, InferenceRoute};
use super::translate::TranslatedRequest;

/// Makes the requests of one client request.
pub(super) struct RequestPlanner {
    pub(super) route: InferenceRoute,
    pub(super) method: Method,
    /// The path and query of the client.
    pub(super) client_target: Uri,
    /// The account of the client.
    pub(super) account: Account,
    /// The headers of the client that pass to a backend.
    pub(super) headers: HeaderMap,
    pub(super) body: RequestBody,
    pub(super) scan: Option<ScannedBody>,
    pub(super) form_model: Option<FormModel>,
    /// The name of the model in the configuration.
    pub(super) model: String,
    /// The request in the terms of `core`, once a translation was needed.
    pub(super) translated: Option<TranslatedRequest>,
    /// Whether a backend has refused to stream, so that it is asked for the whole answer.
    pub(super) without_stream: bool,
}

impl CallPlanner for RequestPlanner {
    fn plan(&mut self, endpoint: &EndpointConfig, id: RequestId) -> Result<PlannedCall, PlanError> {
        match self.upstream_path(endpoint, id) {
            Some(pass) => self.pass_through(endpoint, pass),
            None => self.translate(endpoint, id),
        }
    }

    fn plan_without_stream(&mut self, kind: BackendKind, status: StatusCode) -> bool {
        // A Cog server answers 406 for a model that cannot stream.
        let refused = kind == BackendKind::Cog && status == StatusCode::NOT_ACCEPTABLE;
        let is_first = !std::mem::replace(&mut self.without_stream, refused);
        refused && is_first && self.translated.is_some()
    }
}

/// A request that a backend takes as it is.
struct PassThrough {
    method: Method,
    path: String,
    upstream_id: Option<String>,
}

impl RequestPlanner {
    /// How a backend of this kind takes the request without a translation.
    fn upstream_path(&self, endpoint: &EndpointConfig, id: RequestId) -> Option<PassThrough> {
        let kind = endpoint.kind;
        let same = |path: &str| PassThrough {
            method: self.method.clone(),
            path: path.to_owned(),
            upstream_id: None,
        };
        match &self.route.operation {
            InferenceOperation::Chat
            | InferenceOperation::Completion
            | InferenceOperation::Embeddings
            | InferenceOperation::OtherOpenAi => {
                let path = &self.route.upstream_path;
                let without_query = path.split('?').next().unwrap_or_default();
                backend::passes_through(kind, without_query).then(|| same(path))
            }
            // Another tidegate knows the inputs of the model, and whether a prompt asks it for a text.
            InferenceOperation::Run => {
                let model = endpoint.upstream_model.as_ref().unwrap_or(&self.model);
                backend::run_path(kind, model).map(|path| same(&path))
            }
            // Cog is always asked by PUT, so that the prediction can be canceled.
            InferenceOperation::Prediction(chosen) => match kind {
                BackendKind::Cog => {
                    let id = chosen.clone().unwrap_or_else(|| id.to_string());
                    Some(PassThrough {
                        method: Method::PUT,
                        path: format!("/predictions/{id}"),
                        upstream_id: Some(id),
                    })
                }
                BackendKind::Tidegate => {
                    let model = endpoint.upstream_model.as_ref().unwrap_or(&self.model);
                    let path = format!("/models/{model}/predictions");
                    Some(match chosen {
                        Some(id) => PassThrough {
                            path: format!("{path}/{id}"),
                            ..same(&path)
                        },
                        None => same(&path),
                    })
                }
                BackendKind::OpenAi | BackendKind::Tgi | BackendKind::Tei | BackendKind::Triton => {
                    None
                }
            },
        }
    }

    /// Whether the body is neither JSON nor empty.
    fn is_file(&self) -> bool {
        self.scan.is_none() && !self.body.known_bytes().is_empty()
    }

    fn pass_through(
        &mut self,
        endpoint: &EndpointConfig,
        pass: PassThrough,
    ) -> Result<PlannedCall, PlanError> {
        let body = match self.route.operation {
            // A `model` in the body is an input.
            InferenceOperation::Run => self.body.for_attempt(),
            _ => self.named_body(endpoint),
        };
        Ok(PlannedCall {
            method: pass.method,
            target: target(&pass.path)?,
            headers: self.headers.clone(),
            body,
            answer: None,
            upstream_id: pass.upstream_id,
        })
    }

    /// The body with the name that the backend has for the model.
    fn named_body(&mut self, endpoint: &EndpointConfig) -> UpstreamRequestBody {
        let name = endpoint.upstream_model.as_ref().unwrap_or(&self.model);
        self.body.expect_model(name);
        match self.body_for(endpoint) {
            Some(changed) => self.body.with_known_bytes(changed),
            None => self.body.for_attempt(),
        }
    }

    /// The known bytes of the body with the name that the backend has for the model, if it differs from the
    /// client's.
    fn body_for(&self, endpoint: &EndpointConfig) -> Option<Bytes> {
        let name = endpoint.upstream_model.as_ref().unwrap_or(&self.model);
        let in_json = self.scan.as_ref().and_then(|scan| scan.model.as_ref());
        let (found, range, name_bytes) = match (in_json, &self.form_model) {
            (Some(model), _) => {
                let quoted = serde_json::to_vec(name).expect("a string is JSON");
                (model.name(), model.range.clone(), quoted)
            }
            (None, Some(form)) => (form.name.as_str(), form.range.clone(), name.clone().into()),
            (None, None) => return None,
        };
        if found == name {
            return None;
        }
        let bytes = self.body.known_bytes();
        let mut changed = BytesMut::with_capacity(bytes.len() + name_bytes.len());
        changed.extend_from_slice(&bytes[..range.start]);
        changed.extend_from_slice(&name_bytes);
        changed.extend_from_slice(&bytes[range.end..]);
        Some(changed.freeze())
    }

    fn translate(
        &mut self,
        endpoint: &EndpointConfig,
        id: RequestId,
    ) -> Result<PlannedCall, PlanError> {
        if self.route.operation == InferenceOperation::Run && self.is_file() {
            return Err(PlanError {
                message: "the backend of the model takes JSON only: send the inputs as JSON with `content-type: application/json`, a file as a data URI".to_owned(),
                param: None,
            });
        }
        let RequestBody::Kept(bytes) = &self.body else {
            return Err(PlanError {
                message: "the body is too large for the backend of the model, which needs a translation; raise `limits.buffer`".to_owned(),
                param: None,
            });
        };
        let request = match &self.translated {
            Some(request) if request.kind == endpoint.kind => request,
            _ => {
                let parsed = TranslatedRequest::parse(&self.route, endpoint.kind, bytes)?;
                self.translated.insert(parsed)
            }
        };
        let name = endpoint.upstream_model.as_ref().unwrap_or(&self.model);
        let context = CallContext {
            upstream_model: name,
            request_id: id,
        };
        let mut call = backend::encode(endpoint.kind, &request.request, &context)?;
        if self.route.operation == InferenceOperation::Run {
            // A prompt may ask for an image, for example.
            call.answer = call.answer.or_any_output();
        }
        let mut headers = self.headers.clone();
        headers.remove(ACCEPT);
        // The answer is read here, and nothing is decompressed.
        headers.remove(ACCEPT_ENCODING);
        headers.remove(CONTENT_TYPE);
        if let Some(content_type) = call.content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        for (name, value) in call.headers {
            if !(self.without_stream && name == ACCEPT) {
                headers.insert(name, value);
            }
        }
        Ok(PlannedCall {
            method: call.method,
            target: target(&call.path)?,
            headers,
            body: UpstreamRequestBody::Full(call.body),
            answer: Some(call.answer),
            upstream_id: None,
        })
    }
}

fn target(path: &str) -> Result<Uri, PlanError> {
    path.parse().map_err(|error| PlanError {
        message: format!("the path `{path}` cannot be sent to a backend: {error}"),
        param: None,
    })
}
