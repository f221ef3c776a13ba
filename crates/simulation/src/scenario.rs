//! What is simulated: the size of the fleet, the load, and the faults.

use std::time::Duration;

use crate::faults::FaultRates;
use crate::planted_bug::PlantedBug;

/// The parameters of a run. The same parameters give the same run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Decides everything random.
    pub seed: u64,
    /// Processes of the API.
    pub apis: usize,
    /// Directors.
    pub directors: usize,
    /// Jobs that each director runs at the same time.
    pub slots: usize,
    /// Jobs of all clients together.
    pub jobs: usize,
    /// Accounts besides the one that has half of the jobs.
    pub accounts: usize,
    /// The mean time that the model needs for a job.
    pub run_time: Duration,
    /// The share of the fleet's capacity that the clients use on average.
    pub load: f64,
    /// How many times a job may start.
    pub max_attempts: u32,
    /// How often calls fail.
    pub rates: FaultRates,
    /// The mean time between two faults of one director: a crash, a restart or a partition. None without it.
    pub director_faults: Option<Duration>,
    /// The mean time between two faults of the API, the store or the queue.
    pub server_faults: Option<Duration>,
    /// How far the clocks of machines are ahead or behind at most.
    pub clock_skew: Duration,
    /// A bug of the simulated servers.
    pub planted: Option<PlantedBug>,
}

impl Scenario {
    /// A fleet with faults.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            apis: 2,
            directors: 4,
            slots: 2,
            jobs: 1000,
            accounts: 10,
            run_time: Duration::from_secs(2),
            load: 0.8,
            max_attempts: 2,
            rates: FaultRates::BAD,
            director_faults: Some(Duration::from_secs(120)),
            server_faults: Some(Duration::from_secs(60)),
            clock_skew: Duration::from_secs(2),
            planted: None,
        }
    }

    /// The same fleet without faults.
    pub fn without_faults(self) -> Self {
        Self {
            rates: FaultRates::NONE,
            director_faults: None,
            server_faults: None,
            clock_skew: Duration::ZERO,
            ..self
        }
    }
}
