//! Runs a scenario.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::api_network::ApiNetwork;
use crate::api_process::ApiProcess;
use crate::checker::{Checker, RunNumbers, Violation};
use crate::clients::Clients;
use crate::clock::{self, SimulatedClock};
use crate::director_process::DirectorProcess;
use crate::disturbances::Disturbances;
use crate::event_log::EventLog;
use crate::faults::Faults;
use crate::live::LiveServer;
use crate::queue::QueueServer;
use crate::random::SeededRandom;
use crate::scenario::Scenario;
use crate::store::StoreServer;
use crate::world::World;

/// How long jobs may take to end after the last fault, however many wait.
const SETTLE_TIME: Duration = Duration::from_secs(600);
/// How often it is checked whether all jobs have ended.
const SETTLE_POLL: Duration = Duration::from_secs(1);

/// The result of a run.
#[derive(Debug)]
pub struct RunReport {
    /// The hash of all events: the same for two runs of the same scenario.
    pub hash: u64,
    /// The number of events.
    pub events: u64,
    /// How much time was simulated.
    pub simulated: Duration,
    /// The numbers of the run.
    pub numbers: RunNumbers,
    /// Messages that were pushed, and deliveries of messages.
    pub deliveries: (u64, u64),
    /// The first broken invariants.
    pub violations: Vec<Violation>,
}

/// Runs a scenario in this thread. Its events are written to `log`, if there is one.
pub fn run(scenario: Scenario, log: Option<Box<dyn Write + Send>>) -> std::io::Result<RunReport> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    let report = runtime.block_on(simulate(scenario, log));
    // The tasks of crashed processes wait for ever.
    runtime.shutdown_background();
    Ok(report)
}

async fn simulate(scenario: Scenario, log: Option<Box<dyn Write + Send>>) -> RunReport {
    let clock = SimulatedClock::start();
    let random = SeededRandom::new(scenario.seed);
    let _guard = clock::enter(clock.clone(), Arc::new(random.fork()));
    let (clients_random, faults_random) = (random.fork(), random.fork());
    let disturbances_random = random.fork();
    let world = Arc::new(world(scenario, clock, random, faults_random, log));
    let apis: Vec<Option<ApiProcess>> = (0..world.scenario.apis)
        .map(|index| Some(ApiProcess::start(&world, index)))
        .collect();
    let apis = Arc::new(Mutex::new(apis));
    let directors: Vec<DirectorProcess> = (0..world.scenario.directors)
        .map(|index| DirectorProcess::start(&world, index))
        .collect();
    let disturbances = Arc::new(Disturbances {
        world: Arc::clone(&world),
        apis: Arc::clone(&apis),
        directors: Mutex::new(directors),
        random: disturbances_random,
    });
    for index in 0..world.scenario.directors {
        let disturbances = Arc::clone(&disturbances);
        world.tasks.spawn(disturbances.keep_director_running(index));
    }
    let tasks = &world.tasks;
    tasks.spawn(Arc::clone(&disturbances).disturb_directors());
    tasks.spawn(Arc::clone(&disturbances).disturb_servers());
    let clients = Clients {
        world: Arc::clone(&world),
        apis,
        random: clients_random,
    };
    Arc::new(clients).run().await;
    world.faults.end();
    settle(&world).await;
    let (numbers, violations, hash, events) = world.checker.conclude();
    RunReport {
        hash,
        events,
        simulated: world.clock.elapsed(),
        numbers,
        deliveries: world.queue.delivery_counts(),
        violations,
    }
}

fn world(
    scenario: Scenario,
    clock: SimulatedClock,
    random: SeededRandom,
    faults_random: SeededRandom,
    log: Option<Box<dyn Write + Send>>,
) -> World {
    let checker = Checker::new(clock.clone(), EventLog::new(log), scenario.max_attempts);
    let checker = Arc::new(checker);
    let faults = Arc::new(Faults::new(faults_random, scenario.rates));
    let store_clock = clock.clone();
    let store = StoreServer::new(store_clock, Some(Arc::clone(&checker)), scenario.planted);
    let queue = QueueServer::new(clock.clone(), scenario.planted);
    World {
        network: Arc::new(ApiNetwork::new(scenario.apis, Arc::clone(&faults))),
        clock,
        random,
        faults,
        checker,
        store: Arc::new(store),
        queue: Arc::new(queue),
        live: Arc::new(LiveServer::new(scenario.planted)),
        tasks: TaskTracker::new(),
        scenario,
    }
}

/// Waits until all jobs have ended, or until some of them make no progress.
async fn settle(world: &World) {
    let (mut least, mut since) = (usize::MAX, world.clock.elapsed());
    loop {
        tokio::time::sleep(SETTLE_POLL).await;
        let inserted = world.checker.inserted_count();
        let unsettled = world.checker.unsettled();
        if unsettled == 0 && inserted >= world.scenario.jobs as u64 {
            return;
        }
        if unsettled < least {
            (least, since) = (unsettled, world.clock.elapsed());
        }
        if world.clock.elapsed().saturating_sub(since) > SETTLE_TIME {
            return;
        }
    }
}
