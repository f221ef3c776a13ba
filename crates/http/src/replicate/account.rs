//! The caller's account and the secret that signs its webhooks.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_core::Account;
use tidegate_core::store::Documents;
use tidegate_service::WebhookSecrets;

use super::reply::{self, ApiError};
use super::{AppState, wire};
use crate::access::{Identity, Role};

/// The namespace and the name of the document that holds the secret.
const NAMESPACE: &str = "replicate";
const NAME: &str = "webhook-secret";

/// `GET /v1/account`
pub(super) async fn show(caller: Identity) -> Response {
    reply::ok(&render(&caller.account))
}

pub(super) fn render(account: &Account) -> wire::Account<'_> {
    let name = account.as_str();
    wire::Account {
        kind: "user",
        username: name,
        name,
        github_url: None,
        avatar_url: None,
    }
}

/// `GET /v1/webhooks/default/secret`. The server's own secret can sign webhooks of every account,
/// so only administrators may read it. Each account has a secret that is derived from it.
pub(super) async fn webhook_secret(
    State(state): State<Arc<AppState>>,
    caller: Identity,
) -> Result<Response, ApiError> {
    if caller.role == Role::User && caller.account.is_anonymous() {
        return Err(ApiError::AdminOnly);
    }
    let secrets = &state.config.webhook_secrets;
    let key = match caller.role {
        Role::Admin => secrets.first(),
        Role::User => secrets.first_for(&caller.account),
    };
    Ok(reply::ok(&wire::Secret {
        key: key.ok_or(ApiError::NotConfigured(
            "This server has no webhook secret; set `TIDEGATE_WEBHOOK_SECRET` or `--data-dir`.",
        ))?,
    }))
}

/// Uses the stored secret unless another one is configured; creates it on the first start. It stays
/// the same, so that webhooks sent earlier can still be verified.
pub async fn ensure_webhook_secret(
    secrets: &WebhookSecrets,
    documents: &dyn Documents,
) -> Result<(), tidegate_core::store::StoreError> {
    if secrets.is_empty() {
        install(
            secrets,
            &documents
                .put_new(NAMESPACE, NAME, generate().into())
                .await?,
        );
    }
    Ok(())
}

/// A new secret as a JSON string, in standard base64: Python's client accepts no other `_` than the
/// first one.
fn generate() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system provides random bytes");
    format!("\"whsec_{}\"", STANDARD.encode(bytes))
}

fn install(secrets: &WebhookSecrets, stored: &[u8]) {
    let text: String = serde_json::from_slice(stored).unwrap_or_default();
    match WebhookSecrets::parse(&text) {
        Ok(parsed) => secrets.replace(&parsed),
        Err(error) => tracing::error!(%error, "failed to parse stored webhook secret"),
    }
}
