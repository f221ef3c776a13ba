//! How many requests came for what, and how they were responses. Counted at the edge, where every answer
//! passes: two short comparisons and one addition each.
//!
//! Answers to requests that nobody wanted to take carry the reason with them (`RejectReason::on`), so that it is
//! counted in the same resource.

use axum::response::Response;
use tidegate_core::label;
use tidegate_core::meter::{Counter, Counters, MetricLabel};

/// What a request was for: the face, the resource, and how its paths begin. The first that fits counts, so
/// those that are asked most stand first.
const RESOURCES: &[(&str, &str, &str)] = &[
    ("cog", "predictions", "/predictions"),
    ("replicate", "predictions", "/v1/predictions"),
    ("cog", "health", "/health-check"),
    ("replicate", "models", "/v1/models"),
    ("replicate", "streams", "/v1/streams"),
    ("replicate", "files", "/v1/files"),
    ("replicate", "trainings", "/v1/trainings"),
    ("replicate", "deployments", "/v1/deployments"),
    ("replicate", "other", "/v1"),
    ("cog", "trainings", "/trainings"),
    ("cog", "schema", "/openapi.json"),
    ("cog", "docs", "/docs"),
    ("cog", "shutdown", "/shutdown"),
    ("runpod", "run", "/run"),
    ("runpod", "runsync", "/runsync"),
    ("runpod", "status", "/status"),
    ("runpod", "stream", "/stream"),
    ("runpod", "cancel", "/cancel"),
    ("runpod", "health", "/health"),
    ("runpod", "endpoints", "/v2"),
    ("admin", "metrics", "/metrics"),
    ("admin", "admin", "/admin"),
];
const INDEX: (&str, &str) = ("cog", "index");
const OTHER: (&str, &str) = ("other", "other");

/// How a request was responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusClass {
    Informational,
    Success,
    Redirection,
    ClientError,
    ServerError,
}

label!(StatusClass: Informational = "1xx", Success = "2xx", Redirection = "3xx", ClientError = "4xx", ServerError = "5xx");

impl StatusClass {
    fn of(status: u16) -> Self {
        match status {
            ..200 => Self::Informational,
            200..300 => Self::Success,
            300..400 => Self::Redirection,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }
}

/// Why a request was turned away before any desk was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// Nobody can say for sure where its parts begin and end.
    BadFraming,
    HeadTooLarge,
    HeadTooSlow,
    /// TLS on the plain port, or the reverse.
    WrongProtocol,
    /// The handshake came to nothing.
    NoTls,
    NoToken,
    NotAllowed,
    BodyTooLarge,
    BodyTooSlow,
    BodyBroken,
    /// The body is of another kind than JSON, or packed.
    WrongMedia,
    /// The account has asked too much.
    TooOften,
}

label!(RejectReason: BadFraming = "bad_framing", HeadTooLarge = "head_too_large", HeadTooSlow = "head_too_slow",
    WrongProtocol = "wrong_protocol", NoTls = "no_tls", NoToken = "no_token", NotAllowed = "not_allowed",
    BodyTooLarge = "body_too_large", BodyTooSlow = "body_too_slow", BodyBroken = "body_broken",
    WrongMedia = "wrong_media", TooOften = "too_often");

impl RejectReason {
    /// Notes on an answer why it is given.
    pub(crate) fn tag(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }
}

/// What has come since the start.
#[derive(Debug)]
pub struct RequestMetrics {
    /// One for each of [`RESOURCES`], then the index, then everything else.
    responses: Box<[Counters<StatusClass>]>,
    rejections: Counters<RejectReason>,
    /// How often there was no room for another connection.
    pub(crate) connections_full: Counter,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        let responses = (0..RESOURCES.len() + 2)
            .map(|_| Counters::default())
            .collect();
        Self {
            responses,
            rejections: Counters::default(),
            connections_full: Counter::default(),
        }
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceIndex(usize);

/// What a path is for.
pub(crate) fn resource_of(path: &str) -> ResourceIndex {
    let fits = |prefix: &str| {
        path.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let found = RESOURCES.iter().position(|(_, _, prefix)| fits(prefix));
    ResourceIndex(found.unwrap_or(RESOURCES.len() + usize::from(path != "/")))
}

impl RequestMetrics {
    pub(crate) fn count_response<B>(&self, resource: ResourceIndex, response: &Response<B>) {
        self.responses[resource.0]
            .of(StatusClass::of(response.status().as_u16()))
            .inc();
        if let Some(reason) = response.extensions().get::<RejectReason>() {
            self.count_rejection(*reason);
        }
    }

    pub(crate) fn count_rejection(&self, reason: RejectReason) {
        self.rejections.of(reason).inc();
    }

    /// Each reason to turn a request away, and how often it was one.
    pub(crate) fn rejection_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.rejections
            .each()
            .map(|(reason, count)| (reason.as_str(), count))
    }

    /// Face, resource, class of the status, and how often. What never came is left out.
    pub(crate) fn response_counts(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> {
        let names = RESOURCES
            .iter()
            .map(|(api, resource, _)| (*api, *resource))
            .chain([INDEX, OTHER]);
        names
            .zip(&self.responses)
            .flat_map(|((api, resource), classes)| {
                classes
                    .each()
                    .filter(|(_, count)| *count > 0)
                    .map(move |(class, count)| (api, resource, class.as_str(), count))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path: &str) -> (&'static str, &'static str) {
        let resource = resource_of(path).0;
        RESOURCES.get(resource).map_or(
            if resource == RESOURCES.len() {
                INDEX
            } else {
                OTHER
            },
            |(api, resource, _)| (*api, *resource),
        )
    }

    #[test]
    fn paths_belong_to_faces_and_resources() {
        for (path, expected) in [
            ("/predictions", ("cog", "predictions")),
            ("/predictions/x/cancel", ("cog", "predictions")),
            ("/predictionsx", OTHER),
            ("/", INDEX),
            ("/v1/predictions/x", ("replicate", "predictions")),
            ("/v1/account", ("replicate", "other")),
            ("/v1", ("replicate", "other")),
            ("/v10", OTHER),
            ("/admin/jobs", ("admin", "admin")),
            ("/metrics", ("admin", "metrics")),
            ("/nowhere", OTHER),
        ] {
            assert_eq!(name(path), expected, "{path}");
        }
    }

    fn answer(status: u16) -> Response {
        Response::builder()
            .status(status)
            .body(axum::body::Body::empty())
            .unwrap()
    }

    #[test]
    fn a_reason_is_counted_beside_the_answer() {
        let metrics = RequestMetrics::default();
        metrics.count_response(resource_of("/x"), &RejectReason::NoToken.tag(answer(401)));
        metrics.count_response(resource_of("/x"), &answer(401));
        let counted: Vec<_> = metrics
            .rejection_counts()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(counted, [("no_token", 1)]);
        assert_eq!(
            metrics.response_counts().collect::<Vec<_>>(),
            [("other", "other", "4xx", 2)]
        );
    }

    #[test]
    fn answers_are_counted_by_class() {
        let metrics = RequestMetrics::default();
        for status in [200, 204, 409, 503] {
            metrics.count_response(resource_of("/predictions"), &answer(status));
        }
        metrics.count_response(resource_of("/x"), &answer(404));
        let seen: Vec<_> = metrics.response_counts().collect();
        assert_eq!(
            seen,
            [
                ("cog", "predictions", "2xx", 2),
                ("cog", "predictions", "4xx", 1),
                ("cog", "predictions", "5xx", 1),
                ("other", "other", "4xx", 1)
            ]
        );
    }
}
