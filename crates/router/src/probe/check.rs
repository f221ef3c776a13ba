//! One health check of one endpoint, and what else the endpoint is asked at this occasion.

use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use tidegate_core::chain;

use super::judge::{HealthAnswer, health_paths, judge};
use super::metrics::{loaded_slots, waiting_requests};
use crate::endpoint::{EndpointKey, ResolvedEndpoint};
use crate::fleet::BackendKind;
use crate::outbound::{OutboundClient, OutboundError, OutboundRequest, OutboundResponse};

/// What is known about an endpoint from earlier checks.
#[derive(Clone, Default)]
pub(super) struct CheckMemory {
    /// The position in the paths of its kind of the one that exists.
    path: usize,
    /// Whether it has no metrics with the length of its queue.
    has_no_metrics: bool,
    /// Whether it was asked for its permits.
    has_told_permits: bool,
}

/// The result of a check.
pub(super) struct ProbeReport {
    pub(super) key: EndpointKey,
    pub(super) result: CheckResult,
    pub(super) memory: CheckMemory,
    /// The requests that wait in the backend.
    pub(super) queue: Option<u32>,
    /// The permits that the backend reports.
    pub(super) permits: Option<u32>,
}

/// Whether the endpoint is healthy, or why not.
pub(super) enum CheckResult {
    Healthy,
    /// Nothing listens at the address.
    Refused(String),
    Failed(String),
}

/// Checks an endpoint.
pub(super) async fn run(
    client: OutboundClient,
    endpoint: ResolvedEndpoint,
    memory: CheckMemory,
    timeout: Duration,
) -> ProbeReport {
    let mut check = EndpointCheck {
        client,
        endpoint,
        memory,
        timeout,
    };
    let result = match check.health().await {
        Ok(HealthAnswer::Healthy | HealthAnswer::NoSuchPath) => CheckResult::Healthy,
        Ok(HealthAnswer::Unhealthy(reason)) => CheckResult::Failed(reason),
        Err(error) if error.is_refused() => CheckResult::Refused(chain(&error).to_string()),
        Err(error) => CheckResult::Failed(chain(&error).to_string()),
    };
    let (mut queue, mut permits) = (None, None);
    if let CheckResult::Healthy = result {
        queue = check.queue().await;
        permits = check.permits().await;
    }
    ProbeReport {
        key: check.endpoint.key,
        result,
        memory: check.memory,
        queue,
        permits,
    }
}

struct EndpointCheck {
    client: OutboundClient,
    endpoint: ResolvedEndpoint,
    memory: CheckMemory,
    timeout: Duration,
}

#[derive(Deserialize)]
struct InfoBody {
    max_concurrent_requests: Option<u32>,
}

impl EndpointCheck {
    /// Asks the path of the configuration, or those of its kind until one exists. A backend without any of
    /// them is healthy if it answers at all.
    async fn health(&mut self) -> Result<HealthAnswer, OutboundError> {
        let config = self.endpoint.config.clone();
        if let Some(path) = &config.probe_path {
            let response = self.get(path).await?;
            return Ok(match judge(config.kind, &response) {
                HealthAnswer::NoSuchPath => {
                    let status = response.status.as_u16();
                    HealthAnswer::Unhealthy(format!("`{path}` answered {status}"))
                }
                answer => answer,
            });
        }
        for (index, path) in health_paths(config.kind)
            .iter()
            .enumerate()
            .skip(self.memory.path)
        {
            let response = self.get(path).await?;
            self.memory.path = index;
            match judge(config.kind, &response) {
                HealthAnswer::NoSuchPath => {}
                answer => return Ok(answer),
            }
        }
        Ok(HealthAnswer::NoSuchPath)
    }

    /// The length of its own queue, if it has such a metric.
    async fn queue(&mut self) -> Option<u32> {
        let has_metrics = matches!(
            self.endpoint.config.kind,
            BackendKind::OpenAi | BackendKind::Tgi
        );
        if !has_metrics || self.memory.has_no_metrics {
            return None;
        }
        let response = self.get("/metrics").await.ok()?;
        let text = str::from_utf8(&response.body).ok();
        let text = text.filter(|_| response.status.is_success());
        let queue = text.and_then(waiting_requests);
        self.memory.has_no_metrics = queue.is_none();
        queue
    }

    /// The permits, if the configuration does not say them.
    async fn permits(&mut self) -> Option<u32> {
        let config = &self.endpoint.config;
        if config.permits.is_some() || self.memory.has_told_permits {
            return None;
        }
        match config.kind {
            BackendKind::Tgi | BackendKind::Tei => self.max_concurrent_requests().await,
            BackendKind::Tidegate => self.slots().await,
            BackendKind::Cog | BackendKind::OpenAi | BackendKind::Triton => None,
        }
    }

    /// The slots of a tidegate server, once its models are loaded.
    async fn slots(&mut self) -> Option<u32> {
        let response = self.get("/metrics").await.ok()?;
        let text = str::from_utf8(&response.body).ok();
        let text = text.filter(|_| response.status.is_success())?;
        let slots = loaded_slots(text).filter(|slots| *slots > 0)?;
        self.memory.has_told_permits = true;
        Some(slots)
    }

    async fn max_concurrent_requests(&mut self) -> Option<u32> {
        let response = self.get("/info").await.ok()?;
        self.memory.has_told_permits = true;
        let info: InfoBody = response.json()?;
        info.max_concurrent_requests.filter(|permits| *permits > 0)
    }

    async fn get(&self, path: &str) -> Result<OutboundResponse, OutboundError> {
        let ResolvedEndpoint { url, config, .. } = &self.endpoint;
        let request = OutboundRequest {
            url,
            http: config.http,
            method: Method::GET,
            path,
            headers: &config.headers,
            body: None,
            timeout: self.timeout,
        };
        self.client.send(request).await
    }
}
