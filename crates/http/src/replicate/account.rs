//! Who the caller is, and with which secret its webhooks are signed.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tidegate_core::Account;
use tidegate_core::store::Documents;
use tidegate_service::Secrets;

use super::reply::{self, ApiError};
use super::{AppState, wire};
use crate::access::{Identity, Role};

/// Where the secret is kept.
const SHELF: &str = "replicate";
const NAME: &str = "webhook-secret";

/// `GET /v1/account`
pub(super) async fn show(caller: Identity) -> Response {
    reply::ok(&written(&caller.account))
}

pub(super) fn written(account: &Account) -> wire::Account<'_> {
    let name = account.as_str();
    wire::Account {
        kind: "user",
        username: name,
        name,
        github_url: None,
        avatar_url: None,
    }
}

/// `GET /v1/webhooks/default/secret`. With the server's own somebody could sign in the name of every account, so
/// only administrators are told it; each account has one of its own.
pub(super) async fn webhook_secret(
    State(state): State<Arc<AppState>>,
    caller: Identity,
) -> Result<Response, ApiError> {
    if caller.role == Role::User && caller.account.is_anonymous() {
        return Err(ApiError::NotYours);
    }
    let secrets = &state.config.webhook_secrets;
    let key = match caller.role {
        Role::Admin => secrets.first(),
        Role::User => secrets.first_of(&caller.account),
    };
    Ok(reply::ok(&wire::Secret {
        key: key.ok_or(ApiError::Unknown(
            "secret: set TIDEGATE_WEBHOOK_SECRET or --data-dir",
        ))?,
    }))
}

/// Signs with the secret that is kept here, unless others are configured. The first time one is made: who asks for
/// it later can also verify what came before.
pub async fn ensure_webhook_secret(
    secrets: &Secrets,
    documents: &dyn Documents,
) -> Result<(), tidegate_core::store::StoreError> {
    if secrets.is_empty() {
        take(
            secrets,
            &documents.put_new(SHELF, NAME, made().into()).await?,
        );
    }
    Ok(())
}

/// A new secret as a JSON text. Plain base64: Python's client takes no `_` in it but the first.
fn made() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system gives random bits");
    format!("\"whsec_{}\"", STANDARD.encode(bytes))
}

fn take(secrets: &Secrets, kept: &[u8]) {
    let text: String = serde_json::from_slice(kept).unwrap_or_default();
    match Secrets::parse(&text) {
        Ok(made) => secrets.replace(&made),
        Err(error) => tracing::error!(%error, "the webhook secret that was kept cannot be read"),
    }
}
