//! How many requests came for what, and how they were answered. Counted at the edge, where every answer
//! passes: two short comparisons and one addition each.
//!
//! Answers to requests that nobody wanted to take carry the reason with them (`Reason::on`), so that it is
//! counted in the same place.

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

/// How a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Informed,
    Done,
    Redirected,
    CallersFault,
    OurFault,
}

label!(Class: Informed = "1xx", Done = "2xx", Redirected = "3xx", CallersFault = "4xx", OurFault = "5xx");

impl Class {
    fn of(status: u16) -> Self {
        match status {
            ..200 => Self::Informed,
            200..300 => Self::Done,
            300..400 => Self::Redirected,
            400..500 => Self::CallersFault,
            500.. => Self::OurFault,
        }
    }
}

/// Why a request was turned away before any desk was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
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

label!(Reason: BadFraming = "bad_framing", HeadTooLarge = "head_too_large", HeadTooSlow = "head_too_slow",
    WrongProtocol = "wrong_protocol", NoTls = "no_tls", NoToken = "no_token", NotAllowed = "not_allowed",
    BodyTooLarge = "body_too_large", BodyTooSlow = "body_too_slow", BodyBroken = "body_broken",
    WrongMedia = "wrong_media", TooOften = "too_often");

impl Reason {
    /// Notes on an answer why it is given.
    pub(crate) fn on(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }
}

/// What has come since the start.
#[derive(Debug)]
pub struct Traffic {
    /// One for each of [`RESOURCES`], then the index, then everything else.
    answered: Box<[Counters<Class>]>,
    refused: Counters<Reason>,
    /// How often there was no room for another connection.
    pub(crate) full: Counter,
}

impl Default for Traffic {
    fn default() -> Self {
        let answered = (0..RESOURCES.len() + 2)
            .map(|_| Counters::default())
            .collect();
        Self {
            answered,
            refused: Counters::default(),
            full: Counter::default(),
        }
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(usize);

/// What a path is for.
pub(crate) fn place_of(path: &str) -> Place {
    let fits = |prefix: &str| {
        path.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let found = RESOURCES.iter().position(|(_, _, prefix)| fits(prefix));
    Place(found.unwrap_or(RESOURCES.len() + usize::from(path != "/")))
}

impl Traffic {
    pub(crate) fn answered<B>(&self, place: Place, response: &Response<B>) {
        self.answered[place.0]
            .of(Class::of(response.status().as_u16()))
            .inc();
        if let Some(reason) = response.extensions().get::<Reason>() {
            self.refused(*reason);
        }
    }

    pub(crate) fn refused(&self, reason: Reason) {
        self.refused.of(reason).inc();
    }

    /// Each reason to turn a request away, and how often it was one.
    pub(crate) fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.refused
            .each()
            .map(|(reason, count)| (reason.as_str(), count))
    }

    /// Face, resource, class of the status, and how often. What never came is left out.
    pub(crate) fn each(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> {
        let names = RESOURCES
            .iter()
            .map(|(api, resource, _)| (*api, *resource))
            .chain([INDEX, OTHER]);
        names
            .zip(&self.answered)
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
        let place = place_of(path).0;
        RESOURCES.get(place).map_or(
            if place == RESOURCES.len() {
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
        let traffic = Traffic::default();
        traffic.answered(place_of("/x"), &Reason::NoToken.on(answer(401)));
        traffic.answered(place_of("/x"), &answer(401));
        let counted: Vec<_> = traffic.refusals().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("no_token", 1)]);
        assert_eq!(
            traffic.each().collect::<Vec<_>>(),
            [("other", "other", "4xx", 2)]
        );
    }

    #[test]
    fn answers_are_counted_by_class() {
        let traffic = Traffic::default();
        for status in [200, 204, 409, 503] {
            traffic.answered(place_of("/predictions"), &answer(status));
        }
        traffic.answered(place_of("/x"), &answer(404));
        let seen: Vec<_> = traffic.each().collect();
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
