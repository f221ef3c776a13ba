//! What delivers webhooks instead of the network.

use std::fmt::Debug;
use std::pin::Pin;

use bytes::Bytes;
use reqwest::header::HeaderMap;
use url::Url;

use crate::WebhookResponse;

/// Delivers webhooks to receivers that exist in a simulation only.
pub trait WebhookTransport: Debug + Send + Sync {
    /// Delivers one message, and returns the response of its receiver.
    fn deliver(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Pin<Box<dyn Future<Output = WebhookResponse> + Send>>;
}
