//! `GET /ui/api/session`: who the client is, and what this server has.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use tidegate_core::record::Api;

use super::pages::origins;
use super::wire::{ServerCommand, ServerDocument, Session, account_name};
use super::{UiState, is_operator};
use crate::access::Identity;
use crate::admin::ok;

/// `GET /ui/api/session`
pub(super) async fn show(State(ui): State<Arc<UiState>>, client: Identity) -> Response {
    let sources = &ui.sources;
    ok(&Session {
        account: account_name(&client.account),
        role: if is_operator(&client) {
            "admin"
        } else {
            "user"
        },
        // With tokens, a client without an account does not get here.
        tokens: !client.account.is_anonymous(),
        server: ui.server_document(),
        apis: ui.apis(),
        files_origins: origins(&sources.file_origins),
        pages: pages(sources.command, &client),
    })
}

impl UiState {
    /// The server process.
    pub(super) fn server_document(&self) -> ServerDocument<'_> {
        ServerDocument {
            command: self.sources.command,
            version: self.sources.build.version,
            epoch: &self.epoch,
            started_at: self.sources.started_at.to_string(),
        }
    }

    /// The APIs that are on.
    pub(super) fn apis(&self) -> Vec<Api> {
        match self.sources.command {
            ServerCommand::Platform => vec![Api::Runpod],
            ServerCommand::Router => vec![Api::Cog, Api::OpenAi, Api::WorkersAi],
            ServerCommand::Serve | ServerCommand::Api => {
                let mut apis = vec![Api::Cog, Api::Replicate, Api::OpenAi, Api::WorkersAi];
                if self.has_runpod_api() {
                    apis.push(Api::Runpod);
                }
                apis
            }
        }
    }

    /// Whether there is an endpoint, or a handler with Runpod's local API.
    fn has_runpod_api(&self) -> bool {
        self.has_handler() || !(self.sources.endpoints)().is_empty()
    }

    /// Whether a model is a Runpod handler.
    pub(super) fn has_handler(&self) -> bool {
        let mut models = self.sources.models.iter().flat_map(|models| models.all());
        models.any(|model| model.current().is_handler)
    }
}

/// The pages that this server has for this client.
fn pages(command: ServerCommand, client: &Identity) -> Vec<&'static str> {
    let has_jobs = command != ServerCommand::Router;
    let operator = is_operator(client);
    let all = [
        ("models", true),
        ("jobs", has_jobs),
        ("overview", operator),
        ("deliveries", has_jobs),
        ("config", operator),
        ("docs", true),
    ];
    let shown = all.into_iter().filter(|(_, is_shown)| *is_shown);
    shown.map(|(page, _)| page).collect()
}
