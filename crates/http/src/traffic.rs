//! How many requests came for what, and how they were answered. Counted at the edge, where every answer
//! passes: two short comparisons and one addition each.

use tidegate_core::label;
use tidegate_core::meter::{Counters, Label};

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

/// The requests that were answered since the start.
#[derive(Debug)]
pub struct Traffic {
    /// One for each of [`RESOURCES`], then the index, then everything else.
    answered: Box<[Counters<Class>]>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self { answered: (0..RESOURCES.len() + 2).map(|_| Counters::default()).collect() }
    }
}

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(usize);

/// What a path is for.
pub(crate) fn place_of(path: &str) -> Place {
    let fits = |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let found = RESOURCES.iter().position(|(_, _, prefix)| fits(prefix));
    Place(found.unwrap_or(RESOURCES.len() + usize::from(path != "/")))
}

impl Traffic {
    pub(crate) fn answered(&self, place: Place, status: u16) {
        self.answered[place.0].of(Class::of(status)).inc();
    }

    /// Face, resource, class of the status, and how often. What never came is left out.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, &'static str, u64)> {
        let names = RESOURCES.iter().map(|(face, resource, _)| (*face, *resource)).chain([INDEX, OTHER]);
        names.zip(&self.answered).flat_map(|((face, resource), classes)| {
            classes.each().filter(|(_, count)| *count > 0).map(move |(class, count)| (face, resource, class.word(), count))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(path: &str) -> (&'static str, &'static str) {
        let place = place_of(path).0;
        RESOURCES.get(place).map_or(if place == RESOURCES.len() { INDEX } else { OTHER }, |(face, resource, _)| (*face, *resource))
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

    #[test]
    fn answers_are_counted_by_class() {
        let traffic = Traffic::default();
        for status in [200, 204, 409, 503] {
            traffic.answered(place_of("/predictions"), status);
        }
        traffic.answered(place_of("/x"), 404);
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
