//! Rate limits in Redis, which several processes share.

use std::time::Duration;

use tidegate_core::rate_counter::{Rate, RateCounter};
use tidegate_queue::redis::{RedisRates, RedisUrls};

use crate::redis_server::RedisServer;

const RATE: Rate = Rate {
    count: 3,
    per: Duration::from_secs(3600),
};

fn open(server: &RedisServer) -> RedisRates {
    let urls: RedisUrls = server.url().parse().expect("a URL");
    RedisRates::new(&urls.all()[0]).expect("a client")
}

#[tokio::test]
async fn two_processes_share_a_limit() {
    let server = RedisServer::start();
    let (first, second) = (open(&server), open(&server));
    let count = async |rates: &RedisRates, key: &str| {
        rates
            .count(key, RATE)
            .await
            .expect("the server answers")
            .wait
    };
    assert_eq!(count(&first, "create:ann").await, None);
    assert_eq!(count(&second, "create:ann").await, None);
    assert_eq!(count(&first, "create:ann").await, None);
    for rates in [&second, &first] {
        let wait = count(rates, "create:ann")
            .await
            .expect("it is over the limit");
        assert!(
            wait > Duration::from_secs(1000) && wait <= Duration::from_secs(1200),
            "{wait:?}"
        );
    }
    assert_eq!(count(&second, "create:bob").await, None);
    assert_eq!(count(&second, "other:ann").await, None);
}

#[tokio::test]
async fn a_refused_request_does_not_count_and_the_limit_returns() {
    let server = RedisServer::start();
    let rates = open(&server);
    let rate = Rate {
        count: 1,
        per: Duration::from_millis(300),
    };
    let count = async || rates.count("ann", rate).await.expect("the server answers");
    assert_eq!(count().await.wait, None);
    let refused = count().await;
    let wait = refused.wait.expect("it is over the limit");
    assert_eq!(refused.reset, wait);
    // Refused requests in the meantime do not make it longer.
    for _ in 0..3 {
        tokio::time::sleep(wait / 4).await;
        count().await;
    }
    tokio::time::sleep(wait).await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while count().await.wait.is_some() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the limit does not return"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn the_value_of_an_unused_limit_is_removed() {
    let server = RedisServer::start();
    let rates = open(&server);
    rates.count("ann", RATE).await.expect("the server answers");
    let ttl: i64 = server.run(&["PTTL", "limit:ann"]);
    assert!((1..=1_200_000).contains(&ttl), "{ttl}");
}
