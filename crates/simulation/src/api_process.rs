//! A simulated process of the API: the real job service, calls of directors, upkeep and reconciliation.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::store::{Documents, Store};
use tidegate_net::Config as NetConfig;
use tidegate_queue::upkeep::{self, UpkeepConfig};
use tidegate_service::{
    Cluster, ClusterUpkeep, DirectorCalls, JobService, LeaseTokens, ModelCatalog, ModelRegistry,
    QueueDirectory, QueuedMarks,
};

use crate::api_network::ApiAddress;
use crate::clock::on_machine;
use crate::faults::SharedServer;
use crate::link::{ProcessLife, ServerLink};
use crate::live::LiveClient;
use crate::queue::QueueClient;
use crate::receiver::{SimulatedReceiver, WEBHOOK_TIMEOUT};
use crate::store::StoreClient;
use crate::world::{MODEL, ServiceParts, World, lookup_service};

/// The pause before a failed start is repeated.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A process of the API that runs.
#[derive(Clone)]
pub(crate) struct ApiProcess {
    pub(crate) life: ProcessLife,
    pub(crate) ahead: i64,
    models: ModelRegistry,
}

impl ApiProcess {
    /// The service that accepts jobs, once a director has registered the model.
    pub(crate) fn jobs(&self) -> Option<JobService> {
        Some(self.models.get(MODEL)?.jobs())
    }

    /// Starts process number `index` of the API.
    pub(crate) fn start(world: &Arc<World>, index: usize) -> Self {
        let (life, ahead) = (ProcessLife::default(), world.skew());
        let link = |server| ServerLink::new(life.clone(), Arc::clone(&world.faults), server);
        let store = Arc::new(StoreClient::new(
            Arc::clone(&world.store),
            link(SharedServer::Store),
        ));
        let name = format!("api-{index}");
        let queue = Arc::new(QueueClient::new(
            Arc::clone(&world.queue),
            link(SharedServer::Queue),
            &name,
        ));
        let live = LiveClient::new(Arc::clone(&world.live), link(SharedServer::Queue), &name);
        let cluster = Cluster {
            leases: Arc::clone(&store) as _,
            live: Arc::new(live),
            publish_url: "http://api.example/events".into(),
            tokens: LeaseTokens::new("simulation"),
            queued_marks: QueuedMarks::default(),
            settings: world.settings(),
            queues: Arc::new(QueueDirectory::new(Arc::clone(&store) as _)),
            metrics: Arc::default(),
            directors: Arc::default(),
        };
        let receiver = SimulatedReceiver {
            life: life.clone(),
            faults: Arc::clone(&world.faults),
            checker: Arc::clone(&world.checker),
        };
        let parts = ServiceParts {
            net: NetConfig {
                webhook_timeout: WEBHOOK_TIMEOUT,
                webhook_transport: Some(Arc::new(receiver)),
                ..NetConfig::default()
            },
            queue,
            store: Some(Arc::clone(&store) as Arc<dyn Store>),
            cluster: Some(cluster.clone()),
        };
        let models = ModelRegistry::new(lookup_service(&world.scenario, parts));
        let process = Self {
            life: life.clone(),
            ahead,
            models: models.clone(),
        };
        let world = Arc::clone(world);
        let tasks = world.tasks.clone();
        tasks.spawn(async move {
            let documents = store as Arc<dyn Documents>;
            let run = on_machine(ahead, run(&world, index, models, documents, cluster, &life));
            tokio::select! {
                biased;
                () = life.crashed() => {}
                () = run => {}
            }
        });
        process
    }
}

/// What `tidegate api` does after its start.
async fn run(
    world: &World,
    index: usize,
    models: ModelRegistry,
    documents: Arc<dyn Documents>,
    cluster: Cluster,
    life: &ProcessLife,
) {
    let catalog = Arc::new(ModelCatalog::new(models.clone(), Arc::clone(&documents)));
    while catalog.refresh().await.is_err() {
        tokio::time::sleep(RETRY_AFTER).await;
    }
    // It fails after everything was started, so it is not repeated.
    models.lookup().start_in_cluster().await.ok();
    let calls = DirectorCalls::new(models.clone(), Arc::clone(&catalog), cluster.clone());
    let address = ApiAddress {
        calls: Arc::new(calls),
        ahead: crate::clock::current_offset(),
        life: life.clone(),
    };
    world.network.set(index, Some(address));
    let handler = ClusterUpkeep {
        models: models.clone(),
        cluster: cluster.clone(),
        documents,
        max_deliveries: UpkeepConfig::default().max_deliveries,
    };
    let queue = models.queue();
    let upkeep = upkeep::run(models.queue(), Arc::new(handler), UpkeepConfig::default());
    tokio::join!(
        catalog.run(),
        cluster.queues.run(&*queue),
        models.reconcile(&cluster),
        cluster.queued_marks.run(&*cluster.leases, &*queue),
        upkeep,
    );
}
