//! A director whose queue is in a real Redis server.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_core::Status;
use tidegate_core::queue::Queue;
use tidegate_queue::redis::{RedisQueue, RedisQueueConfig};

use crate::fake_model::within;
use crate::harness::{Harness, Options, eventually};

/// A Redis server on a Unix socket, which keeps nothing. It is killed when it is dropped.
struct RedisServer {
    folder: TempDir,
    child: Child,
}

impl RedisServer {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = spawn(&folder);
        Self { folder, child }
    }

    fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(&self.folder);
    }

    /// The queue, as soon as the server runs.
    async fn open(&self, consumer: &str) -> Arc<dyn Queue> {
        let url = format!("unix://{}/redis.sock", self.folder.path().display());
        let config = RedisQueueConfig::new(url.parse().unwrap(), consumer);
        within(async {
            loop {
                match RedisQueue::open(config.clone()).await {
                    Ok(queue) => return Arc::new(queue) as Arc<dyn Queue>,
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        })
        .await
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn spawn(folder: &TempDir) -> Child {
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .arg("--unixsocket")
        .arg(folder.path().join("redis.sock"))
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed (`scripts/apt.sh redis-server`)")
}

async fn start(server: &RedisServer) -> Harness {
    Harness::start(Options {
        queue: Some(server.open("gpu-1").await),
        ..Options::default()
    })
    .await
}

#[tokio::test]
async fn jobs_run_in_order_and_a_director_with_one_slot_has_one_message() {
    let server = RedisServer::start();
    let harness = start(&server).await;
    for id in ["a", "b", "c"] {
        harness.add(id).await;
    }
    for (id, waiting) in [("a", 2), ("b", 1), ("c", 0)] {
        let run = harness.model.started().await;
        assert_eq!(run.work.id.as_str(), id);
        harness.wait_for_messages((waiting, 1)).await;
        run.succeed("1");
    }
    harness.wait_for_messages((0, 0)).await;
}

#[tokio::test]
async fn a_running_job_survives_the_loss_of_redis() {
    let mut server = RedisServer::start();
    let harness = start(&server).await;
    let id = harness.add("a").await;
    let run = harness.model.started().await;
    server.restart();
    run.succeed("1");
    eventually(|| harness.api.status(&id) == Some(Status::Succeeded)).await;
    let other = server.open("other").await;
    let next = crate::harness::spec("b");
    let id = next.id.clone();
    harness.api.add(next);
    crate::harness::push(&*other, &id).await;
    harness.model.started().await.succeed("2");
    eventually(|| harness.api.status(&id) == Some(Status::Succeeded)).await;
}
