//! Relays WebSocket connections: the upgrade is forwarded to one endpoint, once, and then bytes pass in both
//! directions. The permit is held until the connection has ended.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CONNECTION, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tidegate_net::upstream::{UpstreamRequestBody, UpstreamUpgraded};
use tidegate_router::backend::NotSupported;
use tidegate_router::fleet::{BackendKind, EndpointConfig};
use tidegate_router::forward::{CallPlanner, Forwarded, PlanError, PlannedCall, RepeatPolicy};
use tidegate_router::{EndpointPermit, RequestId};

use super::GatewayState;
use super::inference::{AdmittedRequest, pass_through};
use super::record::RequestRecord;
use super::route::{ClientApi, InferenceRoute};
use super::websocket_relay::{RelayLimits, relay};

/// The headers of a handshake, which are headers of the connection and so do not pass otherwise.
const SEC_WEBSOCKET: &str = "sec-websocket-";

/// Whether a request asks for a WebSocket connection.
pub(super) fn is_upgrade(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::GET
        && headers
            .get(UPGRADE)
            .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Makes the handshake with the endpoint.
struct UpgradePlanner {
    headers: HeaderMap,
    route: InferenceRoute,
}

impl CallPlanner for UpgradePlanner {
    fn plan(
        &mut self,
        endpoint: &EndpointConfig,
        _id: RequestId,
    ) -> Result<PlannedCall, PlanError> {
        if matches!(endpoint.kind, BackendKind::Cog | BackendKind::Tei) {
            return Err(PlanError::from(NotSupported {
                kind: endpoint.kind,
                reason: "has no WebSocket connections".to_owned(),
            }));
        }
        let target = self.route.upstream_path.parse();
        Ok(PlannedCall {
            method: Method::GET,
            target: target.map_err(|_| PlanError {
                message: "the path cannot be sent to a backend".to_owned(),
                param: None,
            })?,
            headers: self.headers.clone(),
            body: UpstreamRequestBody::Empty,
            answer: None,
            upstream_id: None,
        })
    }
}

impl GatewayState {
    /// Answers a request for a WebSocket connection.
    pub(super) async fn upgrade(
        self: &Arc<Self>,
        route: InferenceRoute,
        mut parts: Parts,
        body: Body,
    ) -> Response {
        let api = route.api;
        let handshake = handshake_headers(&parts.headers);
        let upgrade = parts.extensions.remove::<OnUpgrade>();
        let admitted = match self.client(&route, &parts) {
            Ok(client) => self.admit(client, route, parts, body).await,
            Err(error) => Err(error),
        };
        let mut request = match admitted {
            Ok(request) => request,
            Err(error) => return self.refuse(api, &error),
        };
        let mut headers = std::mem::take(&mut request.planner.headers);
        headers.extend(handshake);
        let planner = UpgradePlanner {
            headers,
            route: request.planner.route.clone(),
        };
        self.connect(api, request, planner, upgrade).await
    }

    async fn connect(
        &self,
        api: ClientApi,
        request: AdmittedRequest,
        mut planner: UpgradePlanner,
        client: Option<OnUpgrade>,
    ) -> Response {
        let AdmittedRequest {
            mut forward,
            mut record,
            ..
        } = request;
        forward.repeat = RepeatPolicy::Never;
        let max_duration = forward.model.websocket.max_duration;
        let forwarded = match self.forwarder.forward(forward, &mut planner).await {
            Ok(forwarded) => forwarded,
            Err(failure) => return self.failed(api, *failure, record),
        };
        record.answered(forwarded.head.status, forwarded.log.clone());
        if forwarded.head.status != StatusCode::SWITCHING_PROTOCOLS {
            return pass_through(api, forwarded, record);
        }
        let Forwarded { head, body, .. } = forwarded;
        let (Some(client), Some((upstream, permit))) = (client, body.into_upgraded()) else {
            return self.refuse(api, &super::error::GatewayError::NoUpgrade);
        };
        let limits = RelayLimits {
            max_duration,
            close: self.close_websockets.clone(),
        };
        self.tasks
            .spawn(run_relay(client, upstream, permit, limits, record));
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = handshake_headers(&head.headers);
        response
    }
}

async fn run_relay(
    client: OnUpgrade,
    upstream: UpstreamUpgraded,
    permit: Option<EndpointPermit>,
    limits: RelayLimits,
    mut record: RequestRecord,
) {
    match client.await {
        Ok(client) => {
            let end = relay(TokioIo::new(client), upstream, limits).await;
            tracing::debug!(?end, "WebSocket connection ended");
        }
        Err(error) => {
            tracing::debug!(%error, "client has gone before the WebSocket connection began")
        }
    }
    drop(permit);
    record.complete();
}

/// The headers of a WebSocket handshake.
fn handshake_headers(headers: &HeaderMap) -> HeaderMap {
    let of_handshake = |name: &HeaderName| name.as_str().starts_with(SEC_WEBSOCKET);
    let own = headers
        .iter()
        .filter(|(name, _)| of_handshake(name))
        .map(|(name, value)| (name.clone(), value.clone()));
    own.chain([
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
    ])
    .collect()
}
