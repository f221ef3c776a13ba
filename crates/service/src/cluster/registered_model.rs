//! A model that directors run: this process only knows its schema.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::health::{Health, HealthReport};
use tidegate_core::port::{Admitted, Executor, WaitPolicy};
use tidegate_core::{Account, Refusal};

/// An executor that admits no job: its jobs wait in the queue until a director takes them.
pub(crate) struct RegisteredModel {
    schema: Arc<Bytes>,
}

impl RegisteredModel {
    pub(crate) fn new(schema: Bytes) -> Self {
        Self {
            schema: Arc::new(schema),
        }
    }
}

#[async_trait]
impl Executor for RegisteredModel {
    fn admit(&self, _account: &Account, _wait: WaitPolicy) -> Result<Admitted, Refusal> {
        Err(Refusal::AtCapacity)
    }

    fn schema(&self) -> Option<Arc<Bytes>> {
        Some(Arc::clone(&self.schema))
    }

    fn report(&self) -> HealthReport {
        // Jobs are accepted even while no director runs.
        HealthReport {
            health: Health::Ready,
            setup: None,
            health_error: None,
            python: None,
            sdk: None,
        }
    }

    async fn check(&self) -> HealthReport {
        self.report()
    }
}
