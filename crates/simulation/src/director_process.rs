//! A simulated director: the real one, with a simulated model. It is started again after it ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tidegate_core::clock;
use tidegate_core::director_api::DirectorJobKind;
use tidegate_director::{Config, Director, DirectorDeps, LoadTiming, OnIsolated};
use tidegate_net::Config as NetConfig;
use tidegate_service::{ModelRegistry, ServedVersion};
use tokio_util::sync::CancellationToken;

use crate::api_network::SimulatedApi;
use crate::clock::{on_machine, with_offset};
use crate::faults::SharedServer;
use crate::link::{ProcessLife, ServerLink};
use crate::live::LiveClient;
use crate::model::SimulatedModel;
use crate::planted_bug::PlantedBug;
use crate::queue::QueueClient;
use crate::world::{ServiceParts, World, lookup_service, target};

/// How often messages are renewed: the default of `tidegate director`.
const CLAIM_INTERVAL: Duration = Duration::from_secs(2);
/// How long a director that stops waits for its jobs.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A director process that runs.
#[derive(Clone)]
pub(crate) struct DirectorProcess {
    pub(crate) name: String,
    pub(crate) life: ProcessLife,
    /// Cancelled to stop the process in order.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the process has ended by itself.
    pub(crate) ended: CancellationToken,
}

pub(crate) fn director_name(index: usize) -> String {
    format!("gpu-{index}")
}

impl DirectorProcess {
    /// Starts director number `index`.
    pub(crate) fn start(world: &Arc<World>, index: usize) -> Self {
        let process = Self {
            name: director_name(index),
            life: ProcessLife::default(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        let ahead = world.skew();
        let director = with_offset(ahead, || process.director(world, index));
        let (life, stop, ended) = (
            process.life.clone(),
            process.stop.clone(),
            process.ended.clone(),
        );
        world.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = life.crashed() => {}
                result = on_machine(ahead, director.run(stop, DRAIN_TIMEOUT)) => {
                    // A process that has ended makes no calls.
                    drop(result);
                    life.crash();
                    ended.cancel();
                }
            }
        });
        process
    }

    fn director(&self, world: &Arc<World>, index: usize) -> Director {
        let link = |server| ServerLink::new(self.life.clone(), Arc::clone(&world.faults), server);
        let queue = Arc::new(QueueClient::new(
            Arc::clone(&world.queue),
            link(SharedServer::Queue),
            &self.name,
        ));
        let live = LiveClient::new(
            Arc::clone(&world.live),
            link(SharedServer::Queue),
            &self.name,
        );
        let extra = usize::from(world.scenario.planted == Some(PlantedBug::ExtraSlot));
        let model = SimulatedModel::new(
            &self.name,
            world.scenario.slots,
            extra,
            self.life.clone(),
            Arc::clone(&world.checker),
        );
        let parts = ServiceParts {
            net: NetConfig::default(),
            queue: Arc::clone(&queue) as _,
            store: None,
            cluster: None,
        };
        let models = ModelRegistry::new(lookup_service(&world.scenario, parts));
        models.offer(ServedVersion {
            jobs: models.lookup().for_model(Arc::new(model), target()),
            created_at: clock::now(),
            description: None,
            folder: PathBuf::new(),
            is_handler: false,
        });
        let api = SimulatedApi {
            network: Arc::clone(&world.network),
            director: self.name.clone(),
            life: self.life.clone(),
            first: index,
            current: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
        };
        let config = Config {
            name: self.name.clone(),
            job_kind: DirectorJobKind::Prediction,
            claim_interval: CLAIM_INTERVAL,
            on_isolated: OnIsolated::Stop,
            loading: LoadTiming::AtStart,
        };
        let deps = DirectorDeps {
            api: Arc::new(api),
            queue,
            models,
            live: Some(Arc::new(live)),
            trained: None,
        };
        Director::new(config, deps)
    }
}
