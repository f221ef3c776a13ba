//! The models of a fleet: how each is queued, routed and retried.

use std::collections::BTreeMap;
use std::time::Duration;

use super::endpoint::EndpointConfig;

/// A model and its backends.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetModel {
    /// The name that clients use.
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// The remote sites where the model is deployed; empty means all of them.
    pub sites: Vec<String>,
    /// The queue of requests that find no free permit.
    pub queue: QueueConfig,
    /// How the site is chosen.
    pub routing: RoutingConfig,
    /// Time limits.
    pub timeout: TimeoutConfig,
    /// How often a request is sent again.
    pub retry: RetryConfig,
    /// Which requests go to the same endpoint.
    pub affinity: Affinity,
    /// WebSocket connections.
    pub websocket: WebSocketConfig,
    /// What a request costs, for events.
    pub cost: CostConfig,
    /// The backends, of all sites.
    pub endpoints: Vec<EndpointConfig>,
}

impl FleetModel {
    /// A model without endpoints and with the default of every setting.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            aliases: Vec::new(),
            sites: Vec::new(),
            queue: QueueConfig::default(),
            routing: RoutingConfig::default(),
            timeout: TimeoutConfig::default(),
            retry: RetryConfig::default(),
            affinity: Affinity::default(),
            websocket: WebSocketConfig::default(),
            cost: CostConfig::default(),
            endpoints: Vec::new(),
        }
    }
}

/// The queue of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueConfig {
    /// The order of the requests.
    pub algorithm: Algorithm,
    /// Waiting requests per permit of the model's local endpoints.
    pub capacity: u32,
    /// A larger number than `capacity` replaces it: set for a whole site.
    pub site_capacity: u32,
    /// How long a request may wait.
    pub max_wait: Duration,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Fair,
            capacity: 4,
            site_capacity: 0,
            max_wait: Duration::from_secs(30),
        }
    }
}

/// The order of waiting requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// In order of arrival, whatever the account. The capacity is for all accounts together.
    Fifo,
    /// Accounts take turns. The capacity is for each account.
    #[default]
    Fair,
}

/// How the site of a request is chosen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RoutingConfig {
    /// The strategy.
    pub strategy: Strategy,
    /// Parameters of the strategy.
    pub params: BTreeMap<String, String>,
}

/// How sites are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// At random.
    #[default]
    Random,
    /// The nearest first, in steps.
    Latency,
    /// One site only: the parameter `site`.
    ForcedSite,
    /// The sites of one resource flow only: the parameter `flow`.
    ForcedFlow,
}

/// The time limits of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeoutConfig {
    /// From arrival to the last byte.
    pub total: Duration,
    /// Between two bytes of a response.
    pub idle: Duration,
    /// From sending to the first byte of the body; `None` is 30 s for streams and `total` otherwise.
    pub first_byte: Option<Duration>,
}

impl Default for TimeoutConfig {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(600),
            idle: Duration::from_secs(30),
            first_byte: None,
        }
    }
}

/// How often a request is sent again before its first byte has reached the client.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryConfig {
    /// After failures.
    pub errors: u32,
    /// After answers that an endpoint or a site is out of capacity.
    pub capacity: CapacityRetries,
    /// The share of all traffic that may be retries.
    pub budget: f64,
    /// Retries of the entry after 429 and 424 of a site.
    pub entry: u32,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            errors: 3,
            capacity: CapacityRetries::default(),
            budget: 0.2,
            entry: 0,
        }
    }
}

/// Retries after answers that there is no capacity; large bodies cost more to send again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapacityRetries {
    /// For bodies of up to 256 KiB.
    pub small: u32,
    /// For larger ones.
    pub large: u32,
}

impl Default for CapacityRetries {
    fn default() -> Self {
        Self { small: 2, large: 1 }
    }
}

/// Which requests go to the same endpoint, while it is not overloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Affinity {
    /// None.
    #[default]
    None,
    /// Requests with the same session.
    Session,
    /// Requests with the same beginning of the prompt.
    Prefix,
}

/// The limits of WebSocket connections.
#[derive(Debug, Clone, PartialEq)]
pub struct WebSocketConfig {
    /// How long a connection may last.
    pub max_duration: Duration,
}

impl Default for WebSocketConfig {
    fn default() -> Self {
        Self {
            max_duration: Duration::from_secs(60 * 60),
        }
    }
}

/// What a request costs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CostConfig {
    /// Neurons for each token of input and output.
    pub neurons_per_token: f64,
    /// Neurons for each request.
    pub neurons_per_request: f64,
}
