//! The port for interim webhook messages of a process that does not send webhooks itself.

use async_trait::async_trait;
use tidegate_core::outbox::OutboxMessage;

/// Takes the interim webhook messages of one job, in place of their receiver.
#[async_trait]
pub trait InterimMessages: Send + Sync {
    /// Passes a message on, once. Returns whether more messages are wanted.
    async fn put(&self, message: OutboxMessage) -> bool;
}
