//! The paths of the APIs, each with a sentence for the documentation.

mod admin;
mod openai;
mod replicate;
mod router;
mod runpod;
mod workers_ai;

pub(super) use admin::ADMIN;
pub(super) use openai::OPENAI;
pub(super) use replicate::REPLICATE;
pub(super) use router::ROUTER;
pub(super) use runpod::{RUNPOD_LOCAL, RUNPOD_PLATFORM};
pub(super) use workers_ai::WORKERS_AI;

/// The documented paths of one API.
pub(in crate::ui::api_docs) struct RouteTable {
    pub(in crate::ui::api_docs) api: &'static str,
    pub(in crate::ui::api_docs) title: &'static str,
    pub(in crate::ui::api_docs) description: &'static str,
    pub(in crate::ui::api_docs) routes: &'static [DocumentedRoute],
}

/// One operation.
pub(in crate::ui::api_docs) struct DocumentedRoute {
    pub(in crate::ui::api_docs) method: &'static str,
    /// As the router writes it: `{*name}` takes the rest of the path.
    pub(in crate::ui::api_docs) path: &'static str,
    pub(in crate::ui::api_docs) summary: &'static str,
    /// The main fields of the body, each with what it means.
    pub(in crate::ui::api_docs) body: &'static [(&'static str, &'static str)],
}

const fn route(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    body: &'static [(&'static str, &'static str)],
) -> DocumentedRoute {
    DocumentedRoute {
        method,
        path,
        summary,
        body,
    }
}
