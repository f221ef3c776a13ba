//! Servers that die, lose their data or are configured wrongly; connections that are cut.

use std::time::Duration;

use tidegate_core::queue::{Queue, TakeOptions};
use tidegate_queue::redis::{RedisOpenError, RedisQueue, RedisQueueConfig};

use crate::redis_server::{
    RedisServer, drain, entry, eventually, push, queue_name, stream, take, take_within,
};

/// Repeats a call until the server can be reached again.
async fn until_ok<T, E: std::fmt::Display>(mut call: impl AsyncFnMut() -> Result<T, E>) -> T {
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) => assert!(tokio::time::Instant::now() < until, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn messages_survive_a_restart_with_an_append_only_file() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let queue = server.open("one").await;
    for id in ["a", "b", "c"] {
        push(&*queue, "ann", id).await;
    }
    let claim = take(&*queue).await.expect("it waits");
    server.kill();
    assert!(
        queue.push(&queue_name(), entry("ann", "d")).await.is_err(),
        "it is down"
    );
    server.restart();
    until_ok(async || queue.push(&queue_name(), entry("ann", "d")).await).await;
    assert!(
        queue.ack(&claim).await.expect("it runs"),
        "the claim is still valid"
    );
    assert_eq!(drain(&*queue).await, ["b", "c", "d"]);
}

#[tokio::test]
async fn a_server_that_lost_its_data_is_noticed_and_works() {
    let mut server = RedisServer::start();
    let queue = server.open("one").await;
    push(&*queue, "ann", "a").await;
    let claim = take(&*queue).await.expect("it waits");
    let epoch = queue.epoch().await.expect("it runs");
    assert_eq!(epoch, queue.first_epoch());
    assert_eq!(queue.epoch().await.expect("it runs"), epoch);
    server.kill();
    server.restart();
    assert_ne!(until_ok(async || queue.epoch().await).await, epoch);
    assert!(
        take(&*queue).await.is_none(),
        "it is empty, and has groups again"
    );
    assert!(!queue.ack(&claim).await.expect("it runs"));
    push(&*queue, "ann", "a").await;
    assert_eq!(drain(&*queue).await, ["a"]);
}

#[tokio::test]
async fn losing_the_data_while_a_take_waits_delays_it_only() {
    let mut server = RedisServer::start();
    let queue = server.open("one").await;
    let options = TakeOptions::within(Duration::from_secs(30));
    let waiting = until_ok(async || queue.take(&queue_name(), options).await);
    let faults = async {
        eventually("a read is blocked", || server.has_blocked_reader()).await;
        server.kill();
        server.restart();
        until_ok(async || queue.push(&queue_name(), entry("ann", "a")).await).await;
    };
    let (claim, ()) = tokio::join!(waiting, faults);
    assert_eq!(claim.expect("a message").entry.id.as_str(), "a");
}

#[tokio::test]
async fn a_flushed_server_has_groups_again() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    push(&*queue, "ann", "a").await;
    take(&*queue).await.expect("it waits");
    let epoch = queue.epoch().await.expect("it runs");
    server.run::<String>(&["FLUSHALL"]);
    assert_ne!(queue.epoch().await.expect("it runs"), epoch);
    assert!(
        take_within(&*queue, Duration::from_millis(20))
            .await
            .is_none()
    );
    assert_eq!(queue.lost(Duration::ZERO, 10).await.expect("it runs"), []);
    push(&*queue, "ann", "a").await;
    assert_eq!(drain(&*queue).await, ["a"]);
}

#[tokio::test]
async fn a_cut_connection_is_opened_again_without_an_error() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    push(&*queue, "ann", "a").await;
    let epoch = queue.epoch().await.expect("it runs");
    for _ in 0..3 {
        server.run::<usize>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        push(&*queue, "ann", "b").await;
    }
    assert_eq!(queue.epoch().await.expect("it runs"), epoch);
    assert_eq!(drain(&*queue).await, ["a", "b"]);
}

#[tokio::test]
async fn a_message_whose_delivery_was_cut_off_is_taken_again() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    take(&*queue).await;
    let (stream, _) = push(&*queue, "ann", "a").await;
    // As if the reply to a read had been lost.
    let lost: redis::Value = server.run(&[
        "XREADGROUP",
        "GROUP",
        "director",
        "one",
        "COUNT",
        "1",
        "STREAMS",
        &stream,
        ">",
    ]);
    assert_ne!(lost, redis::Value::Nil);
    assert!(
        take(&*queue).await.is_none(),
        "nothing failed, so nothing is recovered"
    );
    server.run::<String>(&["SET", "x", "y"]);
    server.run::<usize>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    // The next blocking read fails, and the one after it recovers the message.
    let again = server.open("one").await;
    let claim = take(&*again).await.expect("it is recovered");
    assert_eq!((claim.entry.id.as_str(), claim.deliveries), ("a", 2));
}

#[tokio::test]
async fn a_restarted_process_gets_the_messages_that_it_had() {
    let server = RedisServer::start();
    let first = server.open("one").await;
    for id in ["a", "b"] {
        push(&*first, "ann", id).await;
        take(&*first).await.expect("it waits");
    }
    drop(first);
    let second = server.open("one").await;
    // A message that waits again in place of the one that was taken.
    push(&*second, "ann", "a").await;
    assert_eq!(drain(&*second).await, ["a", "b"]);
    assert_eq!(server.calls("xadd"), 2, "pushing again adds nothing");
}

#[tokio::test]
async fn a_message_that_kills_its_process_is_left_to_upkeep() {
    let server = RedisServer::start();
    let api = server.open("api").await;
    push(&*api, "ann", "poison").await;
    for deliveries in 1..=3 {
        let director = server.open("director").await;
        assert_eq!(
            take(&*director).await.expect("it waits").deliveries,
            deliveries
        );
    }
    let director = server.open("director").await;
    assert!(take(&*director).await.is_none());
    let lost = api.lost(Duration::ZERO, 10).await.expect("it runs");
    assert_eq!(lost[0].deliveries, 3);
    assert!(
        api.bury(&lost[0], "delivered 3 times")
            .await
            .expect("it runs")
    );
    assert!(take(&*director).await.is_none());
}

#[tokio::test]
async fn the_message_of_a_caller_that_is_gone_waits_again() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let gone = take_within(&*queue, Duration::from_secs(30));
    tokio::select! {
        _ = gone => panic!("nothing waits"),
        () = eventually("a read is blocked", || server.has_blocked_reader()) => {}
    }
    push(&*queue, "ann", "a").await;
    let claim = take_within(&*queue, Duration::from_secs(30))
        .await
        .expect("it was put back");
    assert_eq!((claim.entry.id.as_str(), claim.deliveries), ("a", 1));
}

#[tokio::test]
async fn a_server_that_evicts_keys_is_refused() {
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]);
    let Err(error) = RedisQueue::open(server.config("one")).await else {
        panic!("it evicts keys");
    };
    assert!(matches!(error, RedisOpenError::Unusable { .. }));
    assert!(
        error.to_string().contains("maxmemory-policy noeviction"),
        "{error}"
    );
}

#[tokio::test]
async fn a_node_of_a_redis_cluster_is_refused() {
    let server = RedisServer::start_with(&["--cluster-enabled", "yes"]);
    let Err(error) = RedisQueue::open(server.config("one")).await else {
        panic!("it is a node of a cluster");
    };
    assert!(matches!(error, RedisOpenError::Unusable { .. }));
    let text = error.to_string();
    assert!(
        text.contains("Redis Cluster") && text.contains("redis+sentinel://"),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_with_the_jobs_of_another_store_is_refused() {
    let server = RedisServer::start();
    let of_store = |store: &str| RedisQueueConfig {
        store: Some(store.to_owned()),
        ..server.config("one")
    };
    for _ in 0..2 {
        RedisQueue::open(of_store("first")).await.expect("its own");
    }
    let Err(error) = RedisQueue::open(of_store("second")).await else {
        panic!("it holds the jobs of the first");
    };
    assert!(error.to_string().contains("another database"), "{error}");
    server.run::<usize>(&["DEL", "meta:store"]);
    RedisQueue::open(of_store("second"))
        .await
        .expect("the first is gone");
}

#[tokio::test]
async fn a_full_server_refuses_pushes_and_keeps_its_messages() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    push(&*queue, "ann", "a").await;
    server.run::<String>(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = queue
        .push(&queue_name(), entry("ann", "b"))
        .await
        .expect_err("it is full");
    assert!(error.to_string().contains("OOM"), "{error}");
    server.run::<String>(&["CONFIG", "SET", "maxmemory", "0"]);
    push(&*queue, "ann", "b").await;
    assert_eq!(drain(&*queue).await, ["a", "b"]);
}

#[tokio::test]
async fn a_wrong_password_is_a_mistake_and_a_server_that_is_down_is_not() {
    let server = RedisServer::start();
    server.run::<String>(&["CONFIG", "SET", "requirepass", "secret"]);
    let url = |password: &str| format!("{}?pass={password}", server.url());
    for password in ["wrong", ""] {
        let config = RedisQueueConfig::new(url(password).parse().expect("an address"), "one");
        let Err(error) = RedisQueue::open(config).await else {
            panic!("the password is wrong");
        };
        assert!(matches!(error, RedisOpenError::Unusable { .. }), "{error}");
        assert!(!error.to_string().contains("wrong@"), "{error}");
    }
    let config = RedisQueueConfig::new(url("secret").parse().expect("an address"), "one");
    RedisQueue::open(config)
        .await
        .expect("the password is right");
    let down = RedisQueueConfig::new("redis://127.0.0.1:1".parse().expect("an address"), "one");
    let Err(error) = RedisQueue::open(down).await else {
        panic!("nothing listens there");
    };
    assert!(
        matches!(error, RedisOpenError::Unreachable { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn deleted_streams_are_created_again() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    push(&*queue, "ann", "a").await;
    take(&*queue).await.expect("it waits");
    for shard in 0..8 {
        server.run::<usize>(&["DEL", &stream(shard)]);
    }
    push(&*queue, "ann", "a").await;
    assert_eq!(drain(&*queue).await, ["a"]);
}
