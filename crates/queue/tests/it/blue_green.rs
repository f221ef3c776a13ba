//! Several servers: the first takes pushes, all are read.

use std::time::Duration;

use tidegate_core::queue::Queue;
use tidegate_queue::redis::{RedisQueue, RedisQueueConfig};

use crate::redis_server::{RedisServer, drain, entry, push, queue_name, stream, take, take_within};

async fn open(servers: &[&RedisServer]) -> RedisQueue {
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let urls = urls.join(",").parse().expect("addresses");
    let config = RedisQueueConfig::new(urls, "one");
    RedisQueue::open(config).await.expect("the servers run")
}

#[tokio::test]
async fn both_servers_are_emptied_in_turn_and_each_gets_its_acknowledgements() {
    let (green, blue) = (RedisServer::start(), RedisServer::start());
    let old = open(&[&blue]).await;
    for n in 0..5 {
        push(&old, "ann", &format!("blue-{n}")).await;
    }
    let queue = open(&[&green, &blue]).await;
    for n in 0..5 {
        push(&queue, "ann", &format!("green-{n}")).await;
    }
    assert_eq!(
        queue.depth(&queue_name()).await.expect("they run").waiting,
        10
    );
    let ids = drain(&queue).await;
    let colours: Vec<&str> = ids.iter().filter_map(|id| id.split('-').next()).collect();
    assert_eq!(colours.len(), 10);
    assert!(colours.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
    for server in [&green, &blue] {
        let waiting: usize = (0..8)
            .map(|shard| server.run::<usize>(&["XLEN", &stream(shard)]))
            .sum();
        assert_eq!((waiting, server.calls("xack")), (0, 5));
    }
}

#[tokio::test]
async fn a_read_waits_a_short_time_on_each_server() {
    let (green, blue) = (RedisServer::start(), RedisServer::start());
    let queue = open(&[&green, &blue]).await;
    let monitors = [&green, &blue].map(RedisServer::monitor);
    assert!(
        take_within(&queue, Duration::from_millis(350))
            .await
            .is_none()
    );
    for monitor in monitors {
        let mut lines = monitor.map(|line| line.expect("the server runs"));
        let read = lines
            .find(|line| line.contains("\"BLOCK\""))
            .expect("a blocking read");
        let words: Vec<&str> = read.split('"').filter(|word| *word != " ").collect();
        let block = words
            .iter()
            .position(|word| *word == "BLOCK")
            .expect("it blocks");
        let milliseconds: u64 = words[block + 1].parse().expect("a number");
        assert!((1..=100).contains(&milliseconds), "{read}");
    }
}

#[tokio::test]
async fn a_message_on_either_server_is_taken_soon() {
    let (green, blue) = (RedisServer::start(), RedisServer::start());
    let queue = open(&[&green, &blue]).await;
    for server in [&blue, &green] {
        let pushes = async {
            tokio::task::yield_now().await;
            server.run::<String>(&["XADD", &stream(3), "*", "account", "ann", "id", "a"])
        };
        let (claim, _) = tokio::join!(take_within(&queue, Duration::from_secs(30)), pushes);
        assert!(
            queue
                .ack(&claim.expect("a message"))
                .await
                .expect("they run")
        );
    }
}

#[tokio::test]
async fn one_server_may_die() {
    let (green, mut blue) = (RedisServer::start(), RedisServer::start());
    let queue = open(&[&green, &blue]).await;
    push(&queue, "ann", "a").await;
    blue.kill();
    push(&queue, "ann", "b").await;
    assert_eq!(
        queue.depth(&queue_name()).await.expect("one runs").waiting,
        2
    );
    assert_eq!(drain(&queue).await, ["a", "b"]);
    assert_eq!(queue.lost(Duration::ZERO, 10).await.expect("one runs"), []);
    assert_eq!(queue.queues().await.expect("one runs"), [queue_name()]);
}

#[tokio::test]
async fn without_the_first_server_messages_of_the_other_are_read() {
    let (mut green, blue) = (RedisServer::start(), RedisServer::start());
    let queue = open(&[&green, &blue]).await;
    blue.run::<String>(&["XADD", &stream(0), "*", "account", "ann", "id", "a"]);
    green.kill();
    let claim = take(&queue).await.expect("it waits");
    assert!(queue.ack(&claim).await.expect("it runs"));
    assert!(queue.push(&queue_name(), entry("ann", "b")).await.is_err());
}
