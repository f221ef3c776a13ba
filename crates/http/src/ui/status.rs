//! `GET /admin/status`: what the dashboard shows, in one response, for `tidegate ps` and other programs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;

use super::changes::sections_of;
use super::publisher::SectionTexts;
use super::wire::ServerDocument;
use super::{UiState, is_operator};
use crate::access::Identity;
use crate::admin::ok;

/// The section that is left out: 15 minutes of numbers for charts.
const HISTORY: &str = "history";

/// The state of the server.
#[derive(Serialize)]
struct StatusDocument<'a> {
    server: ServerDocument<'a>,
    scope: &'static str,
    at: String,
    #[serde(flatten)]
    sections: SectionTexts,
}

/// `GET /admin/status`: all of the server for operators; for other accounts the models, with their own jobs.
pub(super) async fn show(State(ui): State<Arc<UiState>>, client: Identity) -> Response {
    let build = ui.latest_build().await;
    let (scope, mut sections) = match is_operator(&client) {
        true => ("all", build.texts.clone()),
        false => ("account", sections_of(&build, &client.account)),
    };
    sections.remove(HISTORY);
    ok(&StatusDocument {
        server: ui.server_document(),
        scope,
        at: build.sections.at.to_string(),
        sections,
    })
}
