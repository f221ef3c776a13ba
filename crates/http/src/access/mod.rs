//! Access control: checks the token of every request before any API sees it, and gives handlers the
//! identity of the client.
//!
//! Without tokens all clients share the anonymous account, and only clients on this machine are
//! administrators; [`OriginPolicy`] refuses requests of web pages. With tokens every request needs one, also on paths that do not
//! exist. Exceptions are the health check, the page of the web UI, which has no data, and streams and downloads
//! whose URL contains a secret.
//! Rejected requests are logged with the target `audit`, never with the token.

mod origin_policy;
mod token_check;
mod tokens;

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tidegate_core::Account;

pub use origin_policy::{
    AllowedHost, AllowedOrigin, InvalidHost, InvalidOrigin, OriginPolicy, allow_origins,
};
pub(crate) use token_check::TokenCheck;
pub use tokens::{DuplicateToken, InvalidTokenDigest, TokenDigest, TokenTable, Tokens};

use crate::director;
use crate::openai::{self, error::OpenAiError};
use crate::replicate;
use crate::request_metrics::RejectReason;
use crate::runpod::platform;
use crate::shared::json_object::JsonObjectWriter;
use crate::ui;
use crate::workers_ai::{self, error::WorkersAiError};

/// The path that needs no token: a monitoring system may not have one.
const PUBLIC_PATH: &str = "/health-check";
/// How much of the path of a rejected request is logged.
const MAX_LOGGED_PATH: usize = 200;

/// The identity of a client. Handlers take it as an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The account whose jobs the client can create and see.
    pub account: Account,
    /// What else the client may do.
    pub role: Role,
}

/// What a client may do besides running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    User,
    /// Operate the server: see the jobs of all accounts, and shut it down.
    Admin,
}

/// The other end of the connection, whatever the headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A client with this address.
    Tcp(SocketAddr),
    /// A process that uses the Unix socket of the server. It may be a proxy for clients of other
    /// machines.
    Unix,
}

impl Peer {
    /// Whether the client is known to be on this machine. The address may be an IPv4-mapped IPv6
    /// address.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix => false,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix socket"),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Identity {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

impl Identity {
    /// The identity that [`check`] has found; without tokens, the anonymous account.
    fn of(extensions: &Extensions) -> Self {
        if let Some(identity) = extensions.get::<Self>() {
            return identity.clone();
        }
        let local = extensions.get::<Peer>().is_some_and(Peer::is_local);
        Self {
            account: Account::ANONYMOUS,
            role: if local { Role::Admin } else { Role::User },
        }
    }
}

/// The client of the public path of a server with tokens; without a known token it has no identity.
#[derive(Debug, Clone)]
struct PublicClient(Option<Identity>);

/// How much of the health of a model a client sees. Handlers take it as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthAccess {
    /// The logs of the setup, too, which may contain tracebacks: administrators, and everyone if there are no
    /// tokens.
    Whole,
    /// The state only.
    State,
}

impl<S: Sync> FromRequestParts<S> for HealthAccess {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let identity = match parts.extensions.get::<PublicClient>() {
            Some(PublicClient(identity)) => identity.as_ref(),
            None => match parts.extensions.get::<Identity>() {
                // The server has no tokens.
                None => return Ok(Self::Whole),
                identity => identity,
            },
        };
        let is_admin = identity.is_some_and(|identity| identity.role == Role::Admin);
        Ok(if is_admin { Self::Whole } else { Self::State })
    }
}

/// Requires a token for every route of `router`. Routes added later are not checked.
pub fn require_token(router: Router, tokens: Tokens) -> Router {
    router.layer(middleware::from_fn_with_state(tokens, check))
}

async fn check(State(tokens): State<Tokens>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let has_own_check = platform::is_worker_path(path) || director::is_director_path(path);
    let is_page = ui::is_open(path, request.headers());
    if path == PUBLIC_PATH {
        let found = token_of(request.headers(), Scheme::Required).map(|token| tokens.find(token));
        let identity = found.ok().flatten();
        request.extensions_mut().insert(PublicClient(identity));
        return next.run(request).await;
    }
    if replicate::is_open(path) || has_own_check || is_page {
        return next.run(request).await;
    }
    // Clients of Runpod's API may send the token without a scheme.
    let scheme = if path.starts_with(platform::ROOT) {
        Scheme::Optional
    } else {
        Scheme::Required
    };
    match token_of(request.headers(), scheme)
        .and_then(|token| tokens.find(token).ok_or(AuthError::UnknownToken))
    {
        Ok(identity) => {
            if ui::is_api(path) {
                let token = token_of(request.headers(), scheme).unwrap_or_default();
                let check = tokens.check_for(token, &identity);
                request.extensions_mut().insert(check);
            }
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(error) => {
            let (reason, peer) = (error.to_string(), peer_of(request.extensions()));
            tracing::warn!(target: "audit", status = 401, path = logged_path(&request), peer, reason, "refused");
            // Clients of an API understand only errors of its shape.
            let mut response = match request.uri().path() {
                path if openai::is_own_path(path) => {
                    OpenAiError::unauthenticated(&reason).into_response()
                }
                path if workers_ai::is_own_path(path) => {
                    WorkersAiError::unauthenticated(&reason).into_response()
                }
                replicate::MODELS_PATH => replicate::reply::unauthenticated_at_models(&reason),
                path if path.starts_with(replicate::ROOT) => replicate::reply::unauthenticated(),
                path if path.starts_with(platform::ROOT) => {
                    platform::reply::unauthenticated(&reason)
                }
                _ => error_response(StatusCode::UNAUTHORIZED, &reason),
            };
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            RejectReason::NoToken.tag(response)
        }
    }
}

/// Requires an administrator. For single routes: `.route_layer(from_fn(require_admin))`.
pub async fn require_admin(request: Request, next: Next) -> Response {
    let client = Identity::of(request.extensions());
    if client.role == Role::Admin {
        return next.run(request).await;
    }
    forbidden(&client, &request)
}

/// Requires an administrator if the server has tokens. Without tokens all clients share one
/// account, so there is no other account to protect. For single routes.
pub async fn require_operator(request: Request, next: Next) -> Response {
    let client = Identity::of(request.extensions());
    if client.role == Role::Admin || client.account.is_anonymous() {
        return next.run(request).await;
    }
    forbidden(&client, &request)
}

fn forbidden(client: &Identity, request: &Request) -> Response {
    let reason = if client.account.is_anonymous() {
        "only clients on the server's machine may do this; to allow others, start the server with tokens and use an administrator's token"
    } else {
        "this needs the token of an administrator"
    };
    let peer = peer_of(request.extensions());
    tracing::warn!(target: "audit", status = 403, account = %client.account, path = logged_path(request), peer, "refused");
    RejectReason::NotAllowed.tag(error_response(StatusCode::FORBIDDEN, reason))
}

/// Why a request is not authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum AuthError {
    #[error("no token: send `Authorization: Bearer TOKEN`")]
    NoToken,
    /// Proxies may read a different one of the headers than we do.
    #[error("several Authorization headers: send one")]
    SeveralHeaders,
    #[error("unknown token")]
    UnknownToken,
}

/// Whether `Authorization` needs a scheme before the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Required,
    Optional,
}

/// The token of a request: `Bearer TOKEN`, or `Token TOKEN` as clients of Replicate's API send it.
fn token_of(headers: &HeaderMap, scheme_rule: Scheme) -> Result<&[u8], AuthError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, other) = (values.next().ok_or(AuthError::NoToken)?, values.next());
    if other.is_some() {
        return Err(AuthError::SeveralHeaders);
    }
    let value = value.as_bytes();
    if scheme_rule == Scheme::Optional && !value.is_empty() && !value.contains(&b' ') {
        return Ok(value);
    }
    let space = value
        .iter()
        .position(|byte| *byte == b' ')
        .ok_or(AuthError::NoToken)?;
    let (scheme, token) = (&value[..space], value[space..].trim_ascii());
    let known = [&b"bearer"[..], b"token"]
        .iter()
        .any(|name| scheme.eq_ignore_ascii_case(name));
    if known && !token.is_empty() {
        Ok(token)
    } else {
        Err(AuthError::NoToken)
    }
}

fn logged_path(request: &Request) -> &str {
    let path = request.uri().path();
    // A request target is ASCII, so the cut cannot split a character.
    path.get(..path.len().min(MAX_LOGGED_PATH))
        .unwrap_or_default()
}

fn peer_of(extensions: &Extensions) -> String {
    extensions
        .get::<Peer>()
        .map_or_else(|| "unknown".to_owned(), Peer::to_string)
}

fn error_response(status: StatusCode, error: &str) -> Response {
    let mut response = Response::new(Body::from(
        JsonObjectWriter::with_capacity(error.len())
            .field("error", error)
            .finish(),
    ));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests;
