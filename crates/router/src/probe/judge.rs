//! What the answer to a health check says, for each kind of backend.

use hyper::StatusCode;
use serde::Deserialize;

use crate::fleet::BackendKind;
use crate::outbound::OutboundResponse;

/// What the answer to a health check says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HealthAnswer {
    Healthy,
    /// The backend answers, but has no such path.
    NoSuchPath,
    /// Why it is not healthy.
    Unhealthy(String),
}

/// The paths of the health checks of a kind; the first one that exists counts.
pub(super) const fn health_paths(kind: BackendKind) -> &'static [&'static str] {
    match kind {
        BackendKind::Cog | BackendKind::Tidegate => &["/health-check"],
        // Servers that only speak OpenAI's API have no other path that works without a model.
        BackendKind::OpenAi => &["/health", "/v1/models"],
        BackendKind::Tgi | BackendKind::Tei => &["/health"],
        BackendKind::Triton => &["/v2/health/ready"],
    }
}

#[derive(Deserialize)]
struct HealthBody {
    status: Option<String>,
}

/// Judges an answer.
pub(super) fn judge(kind: BackendKind, response: &OutboundResponse) -> HealthAnswer {
    let status = response.status;
    if status.is_success() {
        return match kind {
            BackendKind::Cog | BackendKind::Tidegate => cog_status(response),
            BackendKind::OpenAi | BackendKind::Tgi | BackendKind::Tei | BackendKind::Triton => {
                HealthAnswer::Healthy
            }
        };
    }
    // A check without the right credentials, or one too many, is answered by a server that works.
    let is_answered = [
        StatusCode::UNAUTHORIZED,
        StatusCode::FORBIDDEN,
        StatusCode::TOO_MANY_REQUESTS,
    ]
    .contains(&status);
    match status {
        _ if is_answered => HealthAnswer::Healthy,
        StatusCode::NOT_IMPLEMENTED => HealthAnswer::NoSuchPath,
        status if status.is_server_error() => {
            HealthAnswer::Unhealthy(format!("it answered {}", status.as_u16()))
        }
        _ => HealthAnswer::NoSuchPath,
    }
}

/// Cog answers 200 in every state.
fn cog_status(response: &OutboundResponse) -> HealthAnswer {
    let body: Option<HealthBody> = response.json();
    match body.and_then(|body| body.status).as_deref() {
        None | Some("READY" | "BUSY") => HealthAnswer::Healthy,
        Some(other) => {
            let status: String = other.chars().take(40).collect();
            HealthAnswer::Unhealthy(format!("its status is {status}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(kind: BackendKind, status: u16, body: &'static str) -> HealthAnswer {
        let response = OutboundResponse {
            status: StatusCode::from_u16(status).unwrap(),
            headers: hyper::HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
        };
        judge(kind, &response)
    }

    #[test]
    fn cog_is_healthy_when_it_is_ready_or_busy() {
        for status in ["READY", "BUSY"] {
            let body = format!(r#"{{"status":"{status}"}}"#).leak();
            assert_eq!(answer(BackendKind::Cog, 200, body), HealthAnswer::Healthy);
        }
        for status in [
            "STARTING",
            "SETUP_FAILED",
            "DEFUNCT",
            "UNHEALTHY",
            "UNKNOWN",
        ] {
            let body = format!(r#"{{"status":"{status}"}}"#).leak();
            let unhealthy = HealthAnswer::Unhealthy(format!("its status is {status}"));
            assert_eq!(answer(BackendKind::Cog, 200, body), unhealthy);
        }
    }

    #[test]
    fn other_statuses_say_whether_the_server_works() {
        let of = |status| answer(BackendKind::OpenAi, status, "");
        assert_eq!(of(200), HealthAnswer::Healthy);
        assert_eq!(of(401), HealthAnswer::Healthy);
        assert_eq!(of(429), HealthAnswer::Healthy);
        assert_eq!(of(302), HealthAnswer::NoSuchPath);
        assert_eq!(of(404), HealthAnswer::NoSuchPath);
        assert_eq!(of(405), HealthAnswer::NoSuchPath);
        assert!(matches!(of(500), HealthAnswer::Unhealthy(_)));
        assert!(matches!(of(503), HealthAnswer::Unhealthy(_)));
    }
}
