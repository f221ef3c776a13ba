//! `GET /ui/api/config`: the effective settings with the origin of each value, for administrators.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;

use super::UiState;
use crate::admin::ok;

/// A setting of the command that runs the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The key in the settings file.
    pub name: String,
    /// The flag; `None` for a setting that is an environment variable only.
    pub flag: Option<String>,
    /// The environment variable.
    pub env: Option<String>,
    /// The value as on the command line; `None` if it has none. Secrets are hidden.
    pub value: Option<String>,
    /// Where the value comes from.
    pub origin: String,
    /// What the setting does.
    pub help: Option<String>,
}

#[derive(Serialize)]
struct Settings<'a> {
    settings: &'a [Setting],
}

/// `GET /ui/api/config`
pub(super) async fn show(State(ui): State<Arc<UiState>>) -> Response {
    ok(&Settings {
        settings: &ui.sources.settings,
    })
}
