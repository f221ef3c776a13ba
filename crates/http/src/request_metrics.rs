//! Counts requests by resource and status class. The edge counts, because every response passes it:
//! two short comparisons and one addition each.
//!
//! A response to a rejected request carries the reason (`RejectReason::tag`), so that the edge
//! counts it in the same place.

use axum::response::Response;
use tidegate_core::counters::{Counter, Counters, MetricLabel};
use tidegate_core::label;

/// API, resource and path prefix. The first match counts, so the most frequent ones come first.
const RESOURCES: &[(&str, &str, &str)] = &[
    ("cog", "predictions", "/predictions"),
    ("replicate", "predictions", "/v1/predictions"),
    ("cog", "health", "/health-check"),
    ("replicate", "models", "/v1/models"),
    ("replicate", "streams", "/v1/streams"),
    ("replicate", "files", "/v1/files"),
    ("replicate", "trainings", "/v1/trainings"),
    ("replicate", "deployments", "/v1/deployments"),
    ("openai", "chat", "/v1/chat"),
    ("openai", "completions", "/v1/completions"),
    ("openai", "embeddings", "/v1/embeddings"),
    ("replicate", "other", "/v1"),
    ("cog", "trainings", "/trainings"),
    ("cog", "schema", "/openapi.json"),
    ("ui", "docs", "/docs"),
    ("cog", "shutdown", "/shutdown"),
    ("runpod", "run", "/run"),
    ("runpod", "runsync", "/runsync"),
    ("runpod", "status", "/status"),
    ("runpod", "stream", "/stream"),
    ("runpod", "cancel", "/cancel"),
    ("runpod", "health", "/health"),
    ("runpod", "endpoints", "/v2"),
    ("workers_ai", "all", "/client/v4"),
    ("workers_ai", "ai", "/ai"),
    ("ui", "api", "/ui/api"),
    ("ui", "assets", "/ui/assets"),
    ("ui", "pages", "/ui"),
    ("admin", "metrics", "/metrics"),
    ("admin", "admin", "/admin"),
];
const INDEX: (&str, &str) = ("cog", "index");
const OTHER: (&str, &str) = ("other", "other");

/// The class of a response status.
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

/// Why a request was rejected before it reached a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// It is ambiguous where the request ends.
    BadFraming,
    HeadTooLarge,
    HeadTooSlow,
    /// TLS on the plain port, or the reverse.
    WrongProtocol,
    /// The TLS handshake failed.
    TlsFailed,
    NoToken,
    NotAllowed,
    /// The request names a host that is not this server's.
    ForeignHost,
    /// A web page of another origin sent a request that changes state.
    CrossSite,
    BodyTooLarge,
    BodyTooSlow,
    BodyBroken,
    /// The body is not JSON, or it is compressed.
    UnsupportedMediaType,
    /// The account exceeded its rate limit.
    RateLimited,
}

label!(RejectReason: BadFraming = "bad_framing", HeadTooLarge = "head_too_large", HeadTooSlow = "head_too_slow",
    WrongProtocol = "wrong_protocol", TlsFailed = "no_tls", NoToken = "no_token", NotAllowed = "not_allowed",
    ForeignHost = "foreign_host", CrossSite = "cross_site",
    BodyTooLarge = "body_too_large", BodyTooSlow = "body_too_slow", BodyBroken = "body_broken",
    UnsupportedMediaType = "wrong_media", RateLimited = "too_often");

impl RejectReason {
    /// Attaches the reason to a response.
    pub(crate) fn tag(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }
}

/// The requests since the start of the server.
#[derive(Debug)]
pub struct RequestMetrics {
    /// One entry for each of [`RESOURCES`], then the index, then everything else.
    responses: Box<[Counters<StatusClass>]>,
    rejections: Counters<RejectReason>,
    /// How often the server could not accept another connection.
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

/// The index of a resource in [`RequestMetrics`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceIndex(usize);

impl ResourceIndex {
    /// The beginning of the paths of the resource; `None` for paths that belong to none.
    pub(crate) fn path_prefix(self) -> Option<&'static str> {
        RESOURCES.get(self.0).map(|(_, _, prefix)| *prefix)
    }
}

/// The resource that a path belongs to.
pub(crate) fn resource_of(path: &str) -> ResourceIndex {
    let matches = |prefix: &str| {
        path.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let found = RESOURCES.iter().position(|(_, _, prefix)| matches(prefix));
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

    /// How often requests were rejected for each reason.
    pub(crate) fn rejection_counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.rejections
            .each()
            .map(|(reason, count)| (reason.as_str(), count))
    }

    /// API, resource, status class and count. Zero counts are left out.
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
    fn paths_belong_to_apis_and_resources() {
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
            ("/ui/", ("ui", "pages")),
            ("/ui/jobs/x", ("ui", "pages")),
            ("/ui/api/changes", ("ui", "api")),
            ("/ui/assets/0/main.js", ("ui", "assets")),
            ("/nowhere", OTHER),
        ] {
            assert_eq!(name(path), expected, "{path}");
        }
    }

    fn response(status: u16) -> Response {
        Response::builder()
            .status(status)
            .body(axum::body::Body::empty())
            .unwrap()
    }

    #[test]
    fn a_reason_is_counted_with_the_response() {
        let metrics = RequestMetrics::default();
        metrics.count_response(resource_of("/x"), &RejectReason::NoToken.tag(response(401)));
        metrics.count_response(resource_of("/x"), &response(401));
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
    fn responses_are_counted_by_class() {
        let metrics = RequestMetrics::default();
        for status in [200, 204, 409, 503] {
            metrics.count_response(resource_of("/predictions"), &response(status));
        }
        metrics.count_response(resource_of("/x"), &response(404));
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
