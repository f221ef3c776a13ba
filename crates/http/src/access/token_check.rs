//! Whether the token of a request is still valid, for responses that last: a token may be revoked meanwhile.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

/// Checks the token of one request again. Without tokens every request stays valid.
#[derive(Clone, Default)]
pub(crate) struct TokenCheck(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl TokenCheck {
    /// `is_valid` looks the token up.
    pub(crate) fn new(is_valid: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_valid)))
    }

    /// Whether the token still belongs to the same client.
    pub(crate) fn is_valid(&self) -> bool {
        self.0.as_ref().is_none_or(|is_valid| is_valid())
    }
}

impl<S: Sync> FromRequestParts<S> for TokenCheck {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}
