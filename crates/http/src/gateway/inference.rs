//! A request for an inference: identifies the client and the model, forwards the request, and gives the
//! answer to the client in the format of its API.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use tidegate_core::{Account, trace};
use tidegate_router::accounts::AccountGuard;
use tidegate_router::body_scan::{ScannedBody, affinity_hash};
use tidegate_router::fleet::{Affinity, FleetModel, PriorityClass};
use tidegate_router::forward::{
    AttemptLog, ForwardFailure, ForwardRequest, Forwarded, RepeatPolicy, RoutingError,
    strip_request_headers, strip_response_headers,
};
use tidegate_router::{Ask, EndpointGroup, RoutingTable};
use tokio::time::Instant;

use super::GatewayState;
use super::access::check_account;
use super::batch::BatchCall;
use super::error::GatewayError;
use super::form_model::FormModel;
use super::pending_stream::{self, PendingStream};
use super::planner::RequestPlanner;
use super::record::{RequestDetails, RequestRecord};
use super::relay_body::{KEEP_ALIVE, RelayBody};
use super::reply;
use super::request_body::{self, ReadRequest, RequestBody};
use super::route::{ClientApi, InferenceRoute, query_value};
use super::sites::{self, SiteRequest};
use super::trace_context::{TRACEPARENT, TraceContext};
use super::translate;
use super::usage_tail::UsageTail;

/// The header that names the model, for requests whose body does not.
pub(super) const MODEL_HEADER: HeaderName = HeaderName::from_static("x-tidegate-model");
/// The header that names the session of a request.
const SESSION_HEADER: HeaderName = HeaderName::from_static("x-session-id");
/// The header with the number of attempts.
const ATTEMPTS_HEADER: HeaderName = HeaderName::from_static("x-attempts");
/// The header with the milliseconds in the queue.
const QUEUE_TIME_HEADER: HeaderName = HeaderName::from_static("x-queue-time-ms");

/// Who sends a request.
pub(super) struct InferenceClient {
    account: Account,
    site: SiteRequest,
    origin: ClientOrigin,
}

/// How a request has reached this router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientOrigin {
    /// From a client.
    Client,
    /// From a router, which has counted it.
    Router,
    /// From the durable queue.
    Queue,
}

impl InferenceClient {
    /// The client of a request that comes from the durable queue.
    pub(super) fn queued(account: Account) -> Self {
        Self {
            account,
            site: SiteRequest::default(),
            origin: ClientOrigin::Queue,
        }
    }

    /// The account of the client.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }
}

/// Marks the response to a request that no backend has answered, because none could be reached or the
/// connection was closed. Clients do not see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoBackendAnswered;

/// A request whose model and account are known.
pub(super) struct AdmittedRequest {
    pub(super) forward: ForwardRequest,
    pub(super) planner: RequestPlanner,
    pub(super) record: RequestRecord,
    pub(super) api: ClientApi,
    pub(super) site: SiteRequest,
}

impl GatewayState {
    /// Answers a request for an inference.
    pub(super) async fn infer(
        self: &Arc<Self>,
        route: InferenceRoute,
        parts: Parts,
        body: Body,
    ) -> Response {
        let api = route.api;
        let client = match self.client(&route, &parts) {
            Ok(client) => client,
            Err(error) => return self.refuse(api, &error),
        };
        let origin = client.origin;
        let mut response = match BatchCall::of(&route, &parts) {
            Some(call) => Box::pin(self.answer_batch_call(call, client, route, parts, body)).await,
            None => self.infer_for(client, route, parts, body).await,
        };
        if origin == ClientOrigin::Router {
            sites::tell_error_number(&mut response);
        }
        response
    }

    /// Answers a request for an inference of a known client.
    pub(super) async fn infer_for(
        self: &Arc<Self>,
        client: InferenceClient,
        route: InferenceRoute,
        parts: Parts,
        body: Body,
    ) -> Response {
        let api = route.api;
        match self.admit(client, route, parts, body).await {
            Ok(request) => self.answer(request).await,
            Err(error) => self.refuse(api, &error),
        }
    }

    /// Identifies the client.
    pub(super) fn client(
        &self,
        route: &InferenceRoute,
        parts: &Parts,
    ) -> Result<InferenceClient, GatewayError> {
        let table = self.registry.table();
        let site = SiteRequest::of(table.fleet(), &parts.headers)?;
        let account = match &site.account {
            Some(account) => account.clone(),
            None => self.account(&table, route, parts)?,
        };
        let origin = match site.is_routed {
            true => ClientOrigin::Router,
            false => ClientOrigin::Client,
        };
        Ok(InferenceClient {
            account,
            site,
            origin,
        })
    }

    /// The response to a request that is not forwarded.
    pub(super) fn refuse(&self, api: ClientApi, error: &GatewayError) -> Response {
        let reply = error.reply();
        tracing::debug!(status = reply.status.as_u16(), %error, "refused a request");
        self.refusals.inc();
        reply::error_response(api, &reply)
    }

    /// Identifies the model, and reads the body.
    pub(super) async fn admit(
        self: &Arc<Self>,
        client: InferenceClient,
        route: InferenceRoute,
        parts: Parts,
        body: Body,
    ) -> Result<AdmittedRequest, GatewayError> {
        let arrived = Instant::now();
        trace::keep_request_span();
        let table = self.registry.table();
        let InferenceClient {
            account,
            site,
            origin,
        } = client;
        let limit = table.fleet().limits.buffer;
        let named = self.named_model(&table, &route, &parts);
        let knows_model = named.is_some();
        let ReadRequest {
            body,
            scan,
            form_model,
        } = request_body::read(body, &parts.headers, limit, knows_model).await?;
        let in_body = || {
            let in_json = scan.as_ref().and_then(|scan| scan.model.as_ref());
            let in_form = form_model.as_ref().map(|model| model.name.clone());
            in_json.map(|model| model.name().to_owned()).or(in_form)
        };
        let name = named.or_else(in_body).ok_or(GatewayError::NoModel)?;
        let Some((model, group)) = table.route(&name) else {
            return Err(GatewayError::UnknownModel(name));
        };
        // The entry has counted the requests of other routers, and the batch those of the queue.
        let guard = match origin {
            ClientOrigin::Router | ClientOrigin::Queue => AccountGuard::default(),
            ClientOrigin::Client => self.registry.accounts().enter(&account)?,
        };
        let asked = scan.as_ref().and_then(|scan| scan.stream);
        let is_stream =
            asked.unwrap_or_else(|| route.api == ClientApi::Cog && accepts_events(&parts.headers));
        let mut ask = self.ask(model, &account, &parts.headers, scan.as_ref(), &body);
        if origin == ClientOrigin::Queue {
            // No client waits for it.
            ask.priority = PriorityClass::Low;
        }
        let trace = TraceContext::of(&parts.headers);
        let record = RequestRecord::new(RequestDetails {
            telemetry: Arc::clone(&self.telemetry),
            metrics: self.telemetry.model(&model.name),
            arrived,
            model: Arc::clone(model),
            account: account.clone(),
            api: route.api,
            is_stream,
            queue_len: group.queue_len(),
            site_path: site.path.clone(),
            trace_id: trace.id,
            log: AttemptLog::default(),
            status: StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST),
            error: None,
            first_byte: None,
            usage: UsageTail::default(),
            known_usage: None,
            _account: guard,
        });
        Ok(self.prepare(PreparedRequest {
            route,
            parts,
            body,
            scan,
            form_model,
            model,
            group,
            ask,
            record,
            is_stream,
            deadline: site.deadline(arrived, model),
            trace_header: trace.new_header,
            site,
            account,
        }))
    }

    fn prepare(&self, request: PreparedRequest<'_>) -> AdmittedRequest {
        let PreparedRequest { parts, body, .. } = request;
        let mut headers = parts.headers;
        strip_request_headers(&mut headers);
        if request.is_stream {
            // Comments and errors are added to a stream, so it must be text.
            headers.remove(ACCEPT_ENCODING);
        }
        if let Some(context) = request.trace_header {
            headers.insert(TRACEPARENT, context);
        }
        let repeat = match &body {
            RequestBody::Kept(_) => RepeatPolicy::Allowed,
            RequestBody::Arriving(_) => RepeatPolicy::Never,
        };
        AdmittedRequest {
            api: request.route.api,
            site: request.site,
            forward: ForwardRequest {
                model: Arc::clone(request.model),
                group: Arc::clone(request.group),
                ask: request.ask,
                is_stream: request.is_stream,
                deadline: request.deadline,
                repeat,
                trace: trace::request_context(),
            },
            planner: RequestPlanner {
                route: request.route,
                method: parts.method,
                client_target: path_and_query(&parts.uri),
                account: request.account,
                headers,
                body,
                scan: request.scan,
                form_model: request.form_model,
                model: request.model.name.clone(),
                translated: None,
                without_stream: false,
            },
            record: request.record,
        }
    }

    /// The account of the client, which must be the one that the path names.
    fn account(
        &self,
        table: &RoutingTable,
        route: &InferenceRoute,
        parts: &Parts,
    ) -> Result<Account, GatewayError> {
        let fleet = table.fleet();
        let client = self
            .accounts
            .identify(fleet, &parts.headers, &parts.extensions)?;
        check_account(fleet, &client.account, route.account.as_deref())?;
        Ok(client.account)
    }

    /// The model that the path, a header or the query names.
    fn named_model(
        &self,
        table: &RoutingTable,
        route: &InferenceRoute,
        parts: &Parts,
    ) -> Option<String> {
        let header = || {
            let value = parts.headers.get(MODEL_HEADER)?.to_str().ok()?;
            Some(value.to_owned())
        };
        let only_cog = || match route.api {
            ClientApi::Cog => single_model(table),
            ClientApi::OpenAi | ClientApi::WorkersAi => None,
        };
        let model = route.model.clone().or_else(header);
        model
            .or_else(|| query_value(&parts.uri, "model"))
            .or_else(only_cog)
    }

    fn ask(
        &self,
        model: &FleetModel,
        account: &Account,
        headers: &HeaderMap,
        scan: Option<&ScannedBody>,
        body: &RequestBody,
    ) -> Ask {
        let affinity = match model.affinity {
            Affinity::None => None,
            Affinity::Session => {
                let header = headers.get(SESSION_HEADER).map(HeaderValue::as_bytes);
                header
                    .map(affinity_hash)
                    .or_else(|| scan.and_then(|scan| scan.cache_key_hash.or(scan.user_hash)))
            }
            Affinity::Prefix => scan.and_then(|scan| scan.prefix_hash),
        };
        Ask {
            priority: self.registry.accounts().priority(account),
            affinity,
            body_bytes: body.kept_len(),
            ..Ask::new(account.clone())
        }
    }

    /// Forwards the request. A stream whose first byte does not come for a while is kept open meanwhile.
    async fn answer(self: &Arc<Self>, request: AdmittedRequest) -> Response {
        if !request.forward.is_stream {
            let api = request.api;
            let (result, record) = self.forward(request).await;
            return self.respond(api, result, record).await;
        }
        let api = request.api;
        let this = Arc::clone(self);
        let mut pending: PendingStream = Box::pin(async move { this.forward(request).await });
        match tokio::time::timeout(KEEP_ALIVE, &mut pending).await {
            Ok((result, record)) => self.respond(api, result, record).await,
            Err(_) => pending_stream::response(api, pending),
        }
    }

    async fn forward(&self, request: AdmittedRequest) -> ForwardResult {
        let AdmittedRequest {
            forward,
            mut planner,
            record,
            site,
            ..
        } = request;
        let result = self.forward_by_site(forward, &mut planner, &site).await;
        let context = AnswerContext {
            operation: planner.route.operation,
            translated: planner.translated,
            model: planner.model,
            request_id: match &result {
                Ok(forwarded) => forwarded.log.request_id.map(|id| id.to_string()),
                Err(_) => None,
            }
            .unwrap_or_default(),
        };
        (result.map(|answer| (answer, context)), record)
    }

    /// The response for the client.
    async fn respond(
        &self,
        api: ClientApi,
        result: Result<(Forwarded, AnswerContext), Box<ForwardFailure>>,
        mut record: RequestRecord,
    ) -> Response {
        match result {
            Ok((forwarded, context)) => {
                record.answered(forwarded.head.status, forwarded.log.clone());
                match forwarded.answer.clone() {
                    None => pass_through(api, forwarded, record),
                    Some(format) => {
                        translate::response(api, format, forwarded, context, record).await
                    }
                }
            }
            Err(failure) => self.failed(api, *failure, record),
        }
    }

    /// The response to a request that no endpoint has answered.
    pub(super) fn failed(
        &self,
        api: ClientApi,
        failure: ForwardFailure,
        mut record: RequestRecord,
    ) -> Response {
        let ForwardFailure { error, log } = failure;
        let error = GatewayError::Forward(error);
        let reply = error.reply();
        tracing::info!(status = reply.status.as_u16(), attempts = log.attempts, endpoint = ?log.endpoint, %error, "request failed");
        record.answered(reply.status, log);
        record.failed(reply.status, reply.number);
        let mut response = reply::error_response(api, &reply);
        if let GatewayError::Forward(RoutingError::Upstream(_)) = error {
            response.extensions_mut().insert(NoBackendAnswered);
        }
        response
    }
}

/// A request before it is forwarded.
struct PreparedRequest<'a> {
    route: InferenceRoute,
    parts: Parts,
    body: RequestBody,
    scan: Option<ScannedBody>,
    form_model: Option<FormModel>,
    model: &'a Arc<FleetModel>,
    group: &'a Arc<EndpointGroup>,
    ask: Ask,
    record: RequestRecord,
    is_stream: bool,
    deadline: Instant,
    /// The trace context for backends, if it is not the one that the client sent.
    trace_header: Option<HeaderValue>,
    site: SiteRequest,
    account: Account,
}

/// What the translation of an answer depends on.
pub(super) struct AnswerContext {
    pub(super) operation: super::route::InferenceOperation,
    pub(super) translated: Option<translate::TranslatedRequest>,
    /// The name that the client knows.
    pub(super) model: String,
    /// The id of the last attempt.
    pub(super) request_id: String,
}

/// The result of forwarding, with the record of the request.
pub(super) type ForwardResult = (
    Result<(Forwarded, AnswerContext), Box<ForwardFailure>>,
    RequestRecord,
);

/// The answer of a backend that speaks the client's API.
pub(super) fn pass_through(
    api: ClientApi,
    forwarded: Forwarded,
    record: RequestRecord,
) -> Response {
    let Forwarded {
        mut head,
        body,
        log,
        ..
    } = forwarded;
    strip_response_headers(&mut head.headers);
    sandbox_documents(&mut head.headers);
    let body = if is_event_stream(&head.headers) {
        // Comments may be added.
        head.headers.remove(CONTENT_LENGTH);
        RelayBody::events(body, record, api)
    } else {
        RelayBody::opaque(body, record)
    };
    add_headers(&mut head.headers, &log);
    Response::from_parts(head, Body::new(body))
}

/// Keeps a document of a backend from running scripts with the origin of the web UI, if a browser opens it.
pub(super) fn sandbox_documents(headers: &mut HeaderMap) {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
    let is_document = ["html", "xml", "svg"]
        .iter()
        .any(|kind| memchr::memmem::find(&content_type, kind.as_bytes()).is_some());
    if is_document || content_type.is_empty() {
        let sandbox = HeaderValue::from_static("sandbox");
        headers.insert(CONTENT_SECURITY_POLICY, sandbox);
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    }
}

/// The headers with which the router tells how it has served a request.
pub(super) fn add_headers(headers: &mut HeaderMap, log: &AttemptLog) {
    headers.insert(ATTEMPTS_HEADER, HeaderValue::from(log.attempts));
    let waited = u64::try_from(log.waited.as_millis()).unwrap_or(u64::MAX);
    headers.insert(QUEUE_TIME_HEADER, HeaderValue::from(waited));
}

/// Whether the body is a stream of events whose bytes are text.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    content_type.is_some_and(|value| value.starts_with(b"text/event-stream"))
        && !headers.contains_key(CONTENT_ENCODING)
}

fn accepts_events(headers: &HeaderMap) -> bool {
    crate::shared::header_lists::accepts(headers, "text/event-stream")
}

/// The name of the model, if the fleet has only one.
fn single_model(table: &RoutingTable) -> Option<String> {
    match table.fleet().models() {
        [model] => Some(model.name.clone()),
        _ => None,
    }
}

/// The target of a request without scheme and host.
fn path_and_query(uri: &Uri) -> Uri {
    let target = uri.path_and_query().cloned();
    target.map_or_else(Uri::default, Uri::from)
}
