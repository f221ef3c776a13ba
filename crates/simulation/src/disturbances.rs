//! Crashes, restarts, partitions and outages, at random times until the faults of the run are over.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::api_process::ApiProcess;
use crate::clients::Apis;
use crate::director_process::{DirectorProcess, director_name};
use crate::faults::SharedServer;
use crate::random::SeededRandom;
use crate::world::World;

/// The longest outage of a server.
const LONGEST_OUTAGE: Duration = Duration::from_secs(20);
/// The longest partition of a director: longer than a lease.
const LONGEST_PARTITION: Duration = Duration::from_secs(80);
/// The longest time until a process is started again.
const LONGEST_RESTART: Duration = Duration::from_secs(15);

/// The processes of a run, and what disturbs them.
pub(crate) struct Disturbances {
    pub(crate) world: Arc<World>,
    pub(crate) apis: Arc<Apis>,
    pub(crate) directors: Mutex<Vec<DirectorProcess>>,
    pub(crate) random: SeededRandom,
}

impl Disturbances {
    /// Disturbs directors.
    pub(crate) async fn disturb_directors(self: Arc<Self>) {
        let Some(each) = self.world.scenario.director_faults else {
            return;
        };
        let count = u32::try_from(self.world.scenario.directors)
            .unwrap_or(1)
            .max(1);
        while !self.world.faults.are_over() {
            tokio::time::sleep(self.random.exponential(each / count)).await;
            if self.world.faults.are_over() {
                return;
            }
            let index = self.random.below(self.world.scenario.directors);
            let world = &self.world;
            match self.random.below(10) {
                0..4 => {
                    let disturbances = Arc::clone(&self);
                    world.tasks.spawn(disturbances.crash_director(index));
                }
                4..6 => {
                    world.checker.note(format_args!("stop gpu-{index}"));
                    self.director(index).stop.cancel();
                }
                _ => {
                    let lasts = self
                        .random
                        .between(Duration::from_secs(1), LONGEST_PARTITION);
                    let name = director_name(index);
                    // The lease outlives the partition.
                    let counts = lasts + world.settings().lease * 2;
                    world.checker.director_cut_off(&name, counts);
                    world.faults.cut_off(&name, lasts);
                }
            }
        }
    }

    fn director(&self, index: usize) -> DirectorProcess {
        let directors = self.directors.lock();
        directors.unwrap_or_else(PoisonError::into_inner)[index].clone()
    }

    async fn crash_director(self: Arc<Self>, index: usize) {
        let process = self.director(index);
        if !process.life.is_running() {
            return;
        }
        process.life.crash();
        self.world.checker.director_crashed(&process.name);
        process.ended.cancel();
    }

    /// Starts a director again whenever it has ended.
    pub(crate) async fn keep_director_running(self: Arc<Self>, index: usize) {
        loop {
            let process = self.director(index);
            process.ended.cancelled().await;
            // A process that stopped in order is gone, too.
            self.world.checker.director_crashed(&process.name);
            let pause = self
                .random
                .between(Duration::from_millis(50), LONGEST_RESTART);
            tokio::time::sleep(pause).await;
            let started = DirectorProcess::start(&self.world, index);
            let directors = self.directors.lock();
            directors.unwrap_or_else(PoisonError::into_inner)[index] = started;
        }
    }

    /// Disturbs the API, the store and the queue.
    pub(crate) async fn disturb_servers(self: Arc<Self>) {
        let Some(interval) = self.world.scenario.server_faults else {
            return;
        };
        while !self.world.faults.are_over() {
            tokio::time::sleep(self.random.exponential(interval)).await;
            if self.world.faults.are_over() {
                return;
            }
            let disturbances = Arc::clone(&self);
            match self.random.below(10) {
                0..5 => {
                    let index = self.random.below(self.world.scenario.apis);
                    self.world.tasks.spawn(disturbances.restart_api(index));
                }
                5..7 => drop(
                    self.world
                        .tasks
                        .spawn(disturbances.outage(SharedServer::Store)),
                ),
                7..9 => drop(
                    self.world
                        .tasks
                        .spawn(disturbances.outage(SharedServer::Queue)),
                ),
                _ => {
                    self.world.checker.note(format_args!("queue lost"));
                    self.world.queue.lose_everything();
                }
            }
        }
    }

    async fn outage(self: Arc<Self>, server: SharedServer) {
        let lasts = self.random.between(Duration::from_secs(1), LONGEST_OUTAGE);
        self.world
            .checker
            .note(format_args!("{server:?} down for {lasts:?}"));
        self.world.faults.set_down(server, true);
        tokio::time::sleep(lasts).await;
        self.world.faults.set_down(server, false);
    }

    async fn restart_api(self: Arc<Self>, index: usize) {
        let process = {
            let mut apis = self.apis.lock().unwrap_or_else(PoisonError::into_inner);
            apis[index].take()
        };
        let Some(process) = process else {
            return;
        };
        self.world.checker.note(format_args!("api-{index} crashed"));
        process.life.crash();
        self.world.network.set(index, None);
        tokio::time::sleep(
            self.random
                .between(Duration::from_millis(50), LONGEST_RESTART),
        )
        .await;
        let started = ApiProcess::start(&self.world, index);
        self.apis.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(started);
    }
}
