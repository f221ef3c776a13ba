//! Who may call: the guard before all faces, and what a handler learns about its caller.
//!
//! Without tokens there is no guard: everybody is the anonymous account, and only callers on this
//! machine are administrators. With tokens nothing is answered without one, paths that do not exist
//! neither; but the health check, and streams and downloads whose address is a token itself. What was refused is written to the log with the target `audit`, never
//! with the token.

mod tokens;

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::Response;
use tidegate_core::Account;

pub use tokens::{DuplicateToken, InvalidTokenDigest, TokenDigest, TokenTable, Tokens};

use crate::replicate;
use crate::request_metrics::RejectReason;
use crate::runpod::platform;
use crate::shared::json_object::JsonObjectWriter;

/// The one path that needs no token: what looks after the server may not know one.
const PUBLIC_PATH: &str = "/health-check";
/// How much of a refused path is logged.
const MAX_LOGGED_PATH: usize = 200;

/// Who calls. Handlers take it as an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Whose jobs it can make and see.
    pub account: Account,
    /// What else it may do.
    pub role: Role,
}

/// What a caller may do besides running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    User,
    /// Look after the server: see what it does for all accounts, and end it.
    Admin,
}

/// From where a request came: the other end of the connection, whatever its headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// Whether it is on this machine. An IPv4 address may come dressed as an IPv6 one.
    pub fn is_local(&self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

impl<S: Sync> FromRequestParts<S> for Identity {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

impl Identity {
    /// What the guard has found out; without a guard, everybody is the same.
    fn of(extensions: &Extensions) -> Self {
        if let Some(known) = extensions.get::<Self>() {
            return known.clone();
        }
        let local = extensions.get::<Peer>().is_some_and(Peer::is_local);
        Self {
            account: Account::ANONYMOUS,
            role: if local { Role::Admin } else { Role::User },
        }
    }
}

/// Puts the guard before everything that `faces` answers. Routes added later are not require_token.
pub fn require_token(faces: Router, tokens: Tokens) -> Router {
    faces.layer(middleware::from_fn_with_state(tokens, check))
}

async fn check(State(tokens): State<Tokens>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    if path == PUBLIC_PATH || replicate::is_open(path) || platform::is_worker_path(path) {
        return next.run(request).await;
    }
    // Clients of Runpod's API may send the token alone.
    let scheme = if path.starts_with(platform::ROOT) {
        Scheme::IfAny
    } else {
        Scheme::Needed
    };
    match presented(request.headers(), scheme)
        .and_then(|token| tokens.find(token).ok_or(AuthError::UnknownToken))
    {
        Ok(identity) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        Err(denied) => {
            let (reason, peer) = (denied.to_string(), peer_of(request.extensions()));
            tracing::warn!(target: "audit", status = 401, path = shown(&request), peer, reason, "refused");
            // Some clients read errors of the shape of their API only.
            let mut response = match request.uri().path() {
                path if path.starts_with(replicate::ROOT) => replicate::reply::unauthenticated(),
                path if path.starts_with(platform::ROOT) => {
                    platform::reply::unauthenticated(&reason)
                }
                _ => error(StatusCode::UNAUTHORIZED, &reason),
            };
            response
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            RejectReason::NoToken.tag(response)
        }
    }
}

/// Lets only administrators through. For single routes: `.route_layer(from_fn(require_admin))`.
pub async fn require_admin(request: Request, next: Next) -> Response {
    let caller = Identity::of(request.extensions());
    if caller.role == Role::Admin {
        return next.run(request).await;
    }
    forbidden(&caller, &request)
}

/// Lets administrators through, and everybody where nobody has to say who they are: all are one account
/// then, and there is nobody whose business could be seen by others. For single routes.
pub async fn require_operator(request: Request, next: Next) -> Response {
    let caller = Identity::of(request.extensions());
    if caller.role == Role::Admin || caller.account.is_anonymous() {
        return next.run(request).await;
    }
    forbidden(&caller, &request)
}

fn forbidden(caller: &Identity, request: &Request) -> Response {
    let reason = if caller.account.is_anonymous() {
        "only callers on the server's own machine may do this; with tokens set, an administrator's token is enough"
    } else {
        "this needs a token of an administrator"
    };
    let peer = peer_of(request.extensions());
    tracing::warn!(target: "audit", status = 403, account = %caller.account, path = shown(request), peer, "refused");
    RejectReason::NotAllowed.tag(error(StatusCode::FORBIDDEN, reason))
}

/// Why a caller is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum AuthError {
    #[error("no token: send `Authorization: Bearer TOKEN`")]
    NoToken,
    /// One of them may be for somebody else; guessing which is how doors are left open.
    #[error("several Authorization headers: send one")]
    SeveralHeaders,
    #[error("unknown token")]
    UnknownToken,
}

/// Whether there must be a word before the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Needed,
    IfAny,
}

/// The token in a request: `Bearer TOKEN`, or `Token TOKEN` as clients of Replicate's API say it.
fn presented(headers: &HeaderMap, wanted: Scheme) -> Result<&[u8], AuthError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (value, other) = (values.next().ok_or(AuthError::NoToken)?, values.next());
    if other.is_some() {
        return Err(AuthError::SeveralHeaders);
    }
    let value = value.as_bytes();
    if wanted == Scheme::IfAny && !value.is_empty() && !value.contains(&b' ') {
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

fn shown(request: &Request) -> &str {
    let path = request.uri().path();
    // A request's target is ASCII: no character is cut in half, and if one were, nothing is shown.
    path.get(..path.len().min(MAX_LOGGED_PATH))
        .unwrap_or_default()
}

fn peer_of(extensions: &Extensions) -> String {
    extensions
        .get::<Peer>()
        .map_or_else(|| "unknown".to_owned(), |peer| peer.0.to_string())
}

fn error(status: StatusCode, error: &str) -> Response {
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
