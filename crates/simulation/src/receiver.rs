//! The simulated receivers of webhooks: they refuse some messages, answer some late, and lose some replies.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_core::{JobId, Status};
use tidegate_net::header::HeaderMap;
use tidegate_net::{Url, WebhookResponse, WebhookTransport};
use tidegate_service::{Snapshot, WebhookRenderer};

use crate::checker::Checker;
use crate::faults::{Faults, Loss};
use crate::link::ProcessLife;

/// How long a sender waits for a receiver.
pub(crate) const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// The body of a message.
#[derive(Serialize, Deserialize)]
struct MessageBody {
    id: JobId,
    status: Status,
}

/// Renders the messages of simulated jobs.
pub(crate) fn renderer() -> WebhookRenderer {
    WebhookRenderer::new(|job: &Snapshot| {
        let body = MessageBody {
            id: job.id.clone(),
            status: job.status,
        };
        Bytes::from(serde_json::to_vec(&body).expect("a message serializes"))
    })
}

/// Delivers the messages of one process.
pub(crate) struct SimulatedReceiver {
    pub(crate) life: ProcessLife,
    pub(crate) faults: Arc<Faults>,
    pub(crate) checker: Arc<Checker>,
}

impl fmt::Debug for SimulatedReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedReceiver")
    }
}

impl WebhookTransport for SimulatedReceiver {
    fn deliver(
        &self,
        _url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Pin<Box<dyn Future<Output = WebhookResponse> + Send>> {
        let (life, faults, checker) = (
            self.life.clone(),
            Arc::clone(&self.faults),
            Arc::clone(&self.checker),
        );
        Box::pin(async move {
            life.or_never().await;
            let plan = faults.plan();
            let refuses = faults.random().chance(faults.rates().refused_webhook);
            tokio::time::sleep(plan.request).await;
            life.or_never().await;
            let response = |status: u16| WebhookResponse {
                status,
                retry_after: None,
            };
            if plan.loss == Some(Loss::Request) {
                tokio::time::sleep(WEBHOOK_TIMEOUT).await;
                return response(504);
            }
            let id = headers.get("webhook-id").and_then(|id| id.to_str().ok());
            let body: Result<MessageBody, _> = serde_json::from_slice(&body);
            if let (Some(message), Ok(body)) = (id, body) {
                checker.message_received(&body.id, message, body.status, !refuses);
            }
            if plan.loss == Some(Loss::Reply) {
                tokio::time::sleep(WEBHOOK_TIMEOUT).await;
                return response(504);
            }
            tokio::time::sleep(plan.reply).await;
            life.or_never().await;
            response(if refuses { 503 } else { 200 })
        })
    }
}
