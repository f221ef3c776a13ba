//! The bodies of `PUT /join` and `DELETE /join`.

use serde::{Deserialize, Serialize};

use super::check::JoinRefusal;
use crate::fleet::BackendKind;

/// The body of `PUT /join`: registers a backend, or renews its registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinRequest {
    /// The URL under which the router reaches the backend. The host `0.0.0.0` or `[::]` stands for the
    /// address that the request comes from.
    pub url: String,
    /// The models of the router that it serves.
    pub models: Vec<String>,
    /// The protocol, if it differs from the one of the endpoint with `join = true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The most requests that it runs at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// For how many seconds the registration lasts; 30 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<f64>,
}

/// The answer to `PUT /join`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinResponse {
    /// The URL that is in use.
    pub url: String,
    /// The names of the models.
    pub models: Vec<String>,
    /// For how many seconds the registration lasts, at most what the key allows.
    pub ttl_s: f64,
}

/// The body of `DELETE /join`: removes a registration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaveRequest {
    /// The URL as in the registration.
    pub url: String,
}

impl JoinRequest {
    pub(super) fn parsed_kind(&self) -> Result<Option<BackendKind>, JoinRefusal> {
        let parse = |name: &String| {
            BackendKind::parse(name).ok_or_else(|| JoinRefusal::InvalidKind {
                kind: name.clone(),
                known: BackendKind::ALL.map(BackendKind::name).join(", "),
            })
        };
        self.kind.as_ref().map(parse).transpose()
    }
}
