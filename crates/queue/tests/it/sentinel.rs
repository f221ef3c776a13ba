//! A server with a replica and a sentinel, which makes the replica the master when the master dies.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::FromRedisValue;
use tempfile::TempDir;
use tidegate_core::queue::{Queue, TakeOptions};
use tidegate_queue::redis::{RedisQueue, RedisQueueConfig};

use crate::redis_server::{entry, eventually, push, queue_name};

/// A process that is killed when it is dropped.
struct TcpServer {
    child: Child,
    port: u16,
    _folder: TempDir,
}

impl TcpServer {
    /// Starts `redis-server` on a free port with these lines of configuration.
    fn start(lines: &[String], flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // The port is free until the server opens it; another process rarely takes it in between.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        let config = folder.path().join("redis.conf");
        let dir = folder.path().display();
        let common = format!("port {port}\nbind 127.0.0.1\ndir {dir}\nsave \"\"\n");
        std::fs::write(&config, common + &lines.join("\n") + "\n").expect("a file");
        let child = Command::new("redis-server")
            .arg(&config)
            .args(flags)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        Self {
            child,
            port,
            _folder: folder,
        }
    }

    fn try_run<T: FromRedisValue>(&self, words: &[&str]) -> Option<T> {
        let client = redis::Client::open(("127.0.0.1", self.port)).expect("an address");
        let mut connection = client.get_connection().ok()?;
        redis::cmd(words[0])
            .arg(&words[1..])
            .query(&mut connection)
            .ok()
    }
}

impl Drop for TcpServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[tokio::test]
async fn the_queue_follows_the_master_that_the_sentinels_name() {
    let mut master = TcpServer::start(&[], &[]);
    let replica_of = format!("replicaof 127.0.0.1 {}", master.port);
    let replica = TcpServer::start(&[replica_of, "repl-diskless-sync-delay 0".to_owned()], &[]);
    let monitor = format!("sentinel monitor main 127.0.0.1 {} 1", master.port);
    let settings = [
        monitor,
        "sentinel down-after-milliseconds main 200".to_owned(),
        "sentinel failover-timeout main 1000".to_owned(),
    ];
    let sentinel = TcpServer::start(&settings, &["--sentinel"]);
    eventually("the sentinel knows the replica", || {
        let replicas: Option<Vec<redis::Value>> =
            sentinel.try_run(&["SENTINEL", "REPLICAS", "main"]);
        replicas.is_some_and(|replicas| !replicas.is_empty())
    })
    .await;
    eventually("the replica has the data of the master", || {
        let info: Option<String> = replica.try_run(&["INFO", "replication"]);
        info.is_some_and(|info| info.contains("master_link_status:up"))
    })
    .await;

    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let config = RedisQueueConfig::new(url.parse().expect("an address"), "one");
    let queue = RedisQueue::open(config).await.expect("the master runs");
    let epoch = queue.epoch().await.expect("it runs");
    push(&queue, "ann", "before").await;
    eventually("the replica has the message", || {
        let keys: Option<Vec<String>> = replica.try_run(&["KEYS", "input:*"]);
        keys.is_some_and(|keys| !keys.is_empty())
    })
    .await;
    master.child.kill().expect("it runs");
    master.child.wait().expect("it was started");

    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    while queue
        .push(&queue_name(), entry("ann", "after"))
        .await
        .is_err()
    {
        assert!(tokio::time::Instant::now() < until, "no new master");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut ids = Vec::new();
    while ids.len() < 2 {
        assert!(tokio::time::Instant::now() < until, "only {ids:?}");
        let options = TakeOptions::within(Duration::from_secs(1));
        if let Ok(Some(claim)) = queue.take(&queue_name(), options).await {
            ids.push(claim.entry.id.to_string());
        }
    }
    assert_eq!(ids, ["before", "after"]);
    assert_ne!(queue.epoch().await.expect("it runs"), epoch, "another run");
}
