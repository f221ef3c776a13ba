//! The client of a request: the origin for its URLs, and the JSON that its version understands.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::USER_AGENT;
use axum::http::request::Parts;

use super::AppState;
use super::origin::Origin;
use super::render::{PredictionRenderer, RenderAborted};

/// The user agents of clients that do not know `aborted`: Python's raises an error, even for a list
/// with one such job, and npm's waits forever.
const OLD_CLIENTS: [&str; 4] = [
    "replicate-python/0.",
    "replicate-python/1.",
    "replicate-javascript/0.",
    "replicate-javascript/1.",
];

/// The user agents of Replicate's clients, which make a file object only of a text that begins with
/// `https:` or `data:`.
const FILE_OBJECT_CLIENTS: [&str; 4] = [
    "replicate-python/",
    "replicate-javascript/",
    "Replicate/Python",
    "AsyncReplicate/Python",
];

/// What the rendering of a job depends on.
pub(super) struct ClientProfile {
    pub(super) origin: Origin,
    /// Renders jobs in a form that the client understands.
    pub(super) renderer: PredictionRenderer,
    /// How the client gets output files in the response for a single prediction.
    pub(super) output_files: OutputFileForm,
}

/// The form of an output file in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputFileForm {
    /// A download URL.
    Url,
    /// A data URI with the content.
    DataUri,
}

impl FromRequestParts<Arc<AppState>> for ClientProfile {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<AppState>,
    ) -> Result<Self, Infallible> {
        let client = parts
            .headers
            .get(USER_AGENT)
            .and_then(|name| name.to_str().ok())
            .unwrap_or_default();
        let renderer = state.config.renderer.clone();
        let renderer = if is_old(client) {
            renderer.with_aborted(RenderAborted::AsCanceled)
        } else {
            renderer
        };
        let output_files = output_file_form(client);
        let origin = Origin::from_request_parts(parts, state).await?;
        Ok(Self {
            output_files: if origin.is_https() {
                OutputFileForm::Url
            } else {
                output_files
            },
            origin,
            renderer,
        })
    }
}

/// The form that a client understands over plain http.
fn output_file_form(client: &str) -> OutputFileForm {
    if FILE_OBJECT_CLIENTS
        .iter()
        .any(|name| client.starts_with(name))
    {
        OutputFileForm::DataUri
    } else {
        OutputFileForm::Url
    }
}

fn is_old(client: &str) -> bool {
    OLD_CLIENTS.iter().any(|old| client.starts_with(old))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_clients_are_recognized_by_their_user_agent() {
        for old in [
            "replicate-python/1.0.7",
            "replicate-javascript/1.4.0",
            "replicate-python/0.26.0",
        ] {
            assert!(is_old(old), "{old}");
        }
        for new in [
            "",
            "replicate-python/2.0.0",
            "Replicate/Python 2.0.0",
            "curl/8.5.0",
            "replicate-javascript/10.0.0",
        ] {
            assert!(!is_old(new), "{new}");
        }
    }
}
