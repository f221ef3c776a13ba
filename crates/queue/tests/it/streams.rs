//! The layout of the streams, and the commands that read them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidegate_core::queue::{
    EntryDetails, PutBackResult, Queue, QueueEntry, QueueName, TakeOptions,
};
use tidegate_core::record::Target;
use tidegate_core::{Account, JobKind};
use tidegate_queue::redis::{RedisQueue, RedisQueueConfig};

use crate::redis_server::{
    RedisServer, drain, entry, eventually, push, queue_name, stream, take, take_within,
};

type Groups = Vec<BTreeMap<String, redis::Value>>;

#[tokio::test]
async fn every_shard_is_a_stream_with_the_group_director_from_the_first_message_on() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    push(&*queue, "ann", "a").await;
    assert_eq!(
        drain(&*queue).await,
        ["a"],
        "the group begins at the first message"
    );
    for shard in 0..8 {
        let groups: Groups = server.run(&["XINFO", "GROUPS", &stream(shard)]);
        let name: String = redis::from_redis_value(groups[0]["name"].clone()).expect("a text");
        assert_eq!((groups.len(), name.as_str()), (1, "director"));
    }
}

#[tokio::test]
async fn each_process_is_one_consumer() {
    let server = RedisServer::start();
    let (one, two) = (server.open("one").await, server.open("two").await);
    let (stream, _) = push(&*one, "ann", "a").await;
    push(&*one, "ann", "b").await;
    let claims = [take(&*one).await, take(&*two).await].map(|claim| claim.expect("it waits"));
    assert_eq!(
        claims.each_ref().map(|claim| claim.entry.id.as_str()),
        ["a", "b"]
    );
    let consumers: Groups = server.run(&["XINFO", "CONSUMERS", &stream, "director"]);
    let name = |consumer: &BTreeMap<String, redis::Value>| {
        redis::from_redis_value::<String>(consumer["name"].clone()).expect("a text")
    };
    let names: BTreeSet<String> = consumers.iter().map(name).collect();
    assert_eq!(names, BTreeSet::from(["one".to_owned(), "two".to_owned()]));
}

#[tokio::test]
async fn a_message_says_what_the_job_is() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let deadline = Timestamp::from_millisecond(4_000_000_000_123).expect("a time");
    let job = QueueEntry {
        deadline: Some(deadline),
        details: Some(Arc::new(EntryDetails {
            kind: JobKind::Prediction,
            target: Arc::new(Target {
                model: "ann/hello".to_owned(),
                version: "ab".repeat(32),
                deployment: None,
            }),
            stream_publish_url: Some("http://api/streams/a".to_owned()),
        })),
        ..entry("ann", "a")
    };
    let place = queue
        .push(&queue_name(), job.clone())
        .await
        .expect("it runs")
        .expect("a place");
    let messages: Vec<(String, BTreeMap<String, String>)> =
        server.run(&["XRANGE", &place.stream, "-", "+"]);
    let fields: Vec<(&str, &str)> = messages[0]
        .1
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let version = "ab".repeat(32);
    assert_eq!(messages[0].0, &*place.message);
    assert_eq!(
        fields,
        [
            ("account", "ann"),
            ("deadline", "4000000000123"),
            ("id", "a"),
            ("kind", "prediction"),
            ("model", "ann/hello"),
            ("priority", "normal"),
            ("stream_publish_url", "http://api/streams/a"),
            ("v", "1"),
            ("version", version.as_str()),
        ]
    );
    let deadlines: Vec<(String, f64)> =
        server.run(&["ZRANGE", "meta:deadlines", "0", "-1", "WITHSCORES"]);
    assert_eq!(deadlines.len(), 1);
    assert!((deadlines[0].1 - 4_000_000_000_123.0).abs() < 0.5);
    assert_eq!(take(&*queue).await.expect("it waits").entry, job);
}

#[tokio::test]
async fn pushing_adds_one_message_and_pushing_again_none() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let first = push(&*queue, "ann", "a").await;
    assert_eq!(push(&*queue, "ann", "a").await, first);
    assert_eq!(
        (
            server.calls("xadd"),
            server.run::<usize>(&["XLEN", &first.0])
        ),
        (1, 1)
    );
    let claim = take(&*queue).await.expect("it waits");
    queue.ack(&claim).await.expect("it runs");
    assert_ne!(push(&*queue, "ann", "a").await, first, "a new message");
}

#[tokio::test]
async fn an_account_uses_few_shards_and_others_use_others() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let mut subsets = BTreeSet::new();
    for account in ["ann", "bob", "cid", "dan", "eve", "fay"] {
        let mut shards = BTreeSet::new();
        for round in 0..12 {
            let (stream, _) = push(&*queue, account, &format!("{round}")).await;
            shards.insert(stream.clone());
            // The account may go to another shard once it has no messages; all others are in use.
            for other in 0..8 {
                let other = crate::redis_server::stream(other);
                if other != stream || round % 2 == 0 {
                    server.run::<String>(&["XADD", &other, "*", "x", "y"]);
                }
            }
            let job = entry(account, &format!("{round}"));
            queue
                .remove(&queue_name(), &job.account, &job.id)
                .await
                .expect("it runs");
        }
        assert!(shards.len() <= 3, "{shards:?}");
        subsets.insert(shards);
    }
    assert!(subsets.len() > 1, "{subsets:?}");
}

#[tokio::test]
async fn an_account_with_a_backlog_stays_on_its_shard() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let mut streams = BTreeSet::new();
    for n in 0..10 {
        streams.insert(push(&*queue, "ann", &format!("{n}")).await.0);
    }
    let last = entry("ann", "9");
    queue
        .remove(&queue_name(), &last.account, &last.id)
        .await
        .expect("it runs");
    streams.insert(push(&*queue, "ann", "again").await.0);
    assert_eq!(streams.len(), 1, "{streams:?}");
    assert_eq!(drain(&*queue).await.len(), 10);
}

#[tokio::test]
async fn other_accounts_avoid_the_shard_of_a_large_batch() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let mut batch = BTreeSet::new();
    for n in 0..50 {
        batch.insert(push(&*queue, "large", &format!("{n}")).await.0);
    }
    for account in ["bob", "cid", "dan", "eve"] {
        let (stream, _) = push(&*queue, account, "one").await;
        assert!(!batch.contains(&stream), "{account}");
    }
}

#[tokio::test]
async fn a_take_delivers_exactly_one_message() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let pushes = async {
        eventually("a read is blocked", || server.has_blocked_reader()).await;
        // One message for each of three shards at once: the blocked read gets all of them.
        let mut transaction = redis::pipe();
        transaction.atomic();
        for shard in [1, 4, 6] {
            let id = format!("job-{shard}");
            let add = transaction.cmd("XADD").arg(stream(shard));
            add.arg(&["*", "account", "ann", "id", &id]);
        }
        let client = redis::Client::open(server.url()).expect("a client");
        let mut connection = client.get_connection().expect("it runs");
        transaction.exec(&mut connection).expect("valid commands");
    };
    let (first, ()) = tokio::join!(take_within(&*queue, Duration::from_secs(30)), pushes);
    let first = first.expect("a message");
    assert_eq!(first.deliveries, 1);
    let held = (0..8)
        .map(|shard| pending_of(&server, shard, "one"))
        .sum::<usize>();
    assert_eq!(held, 1, "the others were put back");
    let second = take(&*queue).await.expect("it was put back");
    assert_eq!(second.deliveries, 1, "putting back does not count");
}

/// How many messages of a shard a consumer holds.
fn pending_of(server: &RedisServer, shard: u16, consumer: &str) -> usize {
    let entries: Vec<redis::Value> = server.run(&[
        "XPENDING",
        &stream(shard),
        "director",
        "-",
        "+",
        "100",
        consumer,
    ]);
    entries.len()
}

#[tokio::test]
async fn the_number_of_reads_does_not_depend_on_the_number_of_callers() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    take(&*queue).await;
    server.run::<String>(&["CONFIG", "RESETSTAT"]);
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let queue = Arc::clone(&queue);
        callers.spawn(async move { take_within(&*queue, Duration::from_secs(30)).await });
    }
    eventually("a read is blocked", || server.has_blocked_reader()).await;
    let clients = server.run::<String>(&["CLIENT", "LIST"]);
    let readers = clients
        .lines()
        .filter(|line| line.contains("cmd=xreadgroup"));
    assert_eq!(readers.count(), 1, "{clients}");
    assert!(server.calls("evalsha") <= 2, "one caller reads");
    for n in 0..20 {
        push(&*queue, "ann", &format!("{n}")).await;
    }
    let ids: BTreeSet<String> = callers
        .join_all()
        .await
        .into_iter()
        .map(|claim| claim.expect("one for each caller").entry.id.to_string())
        .collect();
    assert_eq!(ids.len(), 20);
}

#[tokio::test]
async fn renewing_keeps_a_message_and_does_not_count_as_a_delivery() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let (stream, message) = push(&*queue, "ann", "a").await;
    let claim = take(&*queue).await.expect("it waits");
    let idle = || {
        let pending: Vec<(String, String, u64, u32)> =
            server.run(&["XPENDING", &stream, "director", &message, &message, "1"]);
        (pending[0].2, pending[0].3)
    };
    eventually("the message is idle", || idle().0 >= 20).await;
    assert_eq!(
        queue
            .renew(std::slice::from_ref(&claim))
            .await
            .expect("it runs"),
        []
    );
    assert!(idle().0 < 20 && idle().1 == 1);
    assert!(queue.ack(&claim).await.expect("it runs"));
}

#[tokio::test]
async fn a_message_of_a_consumer_that_is_gone_waits_again_at_once() {
    let server = RedisServer::start();
    let (one, two) = (server.open("one").await, server.open("two").await);
    let job = entry("ann", "a");
    let put_back = async || {
        let result = two.put_back_job(&queue_name(), &job.account, &job.id).await;
        result.expect("the server answers")
    };
    assert_eq!(put_back().await, PutBackResult::NoEntry);
    push(&*one, "ann", "a").await;
    assert_eq!(put_back().await, PutBackResult::Waiting);
    let lost = take(&*one).await.expect("a message");
    assert!(take(&*two).await.is_none(), "the other has it");
    assert_eq!(put_back().await, PutBackResult::PutBack);
    let claim = take(&*two).await.expect("the same message");
    assert_eq!((&claim.entry.id, claim.deliveries), (&job.id, 2));
    assert!(
        !one.ack(&lost).await.expect("the server answers"),
        "it lost the claim"
    );
    assert!(two.ack(&claim).await.expect("the server answers"));
}

#[tokio::test]
async fn the_same_message_id_on_two_shards_is_two_messages() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    for shard in [0, 1] {
        let id = format!("on-{shard}");
        server.run::<String>(&["XADD", &stream(shard), "7-0", "account", "ann", "id", &id]);
    }
    let claims = [take(&*queue).await, take(&*queue).await].map(|claim| claim.expect("it waits"));
    for claim in &claims {
        assert!(queue.ack(claim).await.expect("it runs"));
    }
    for shard in [0, 1] {
        assert_eq!(server.run::<usize>(&["XLEN", &stream(shard)]), 0);
    }
}

#[tokio::test]
async fn an_acknowledgement_is_one_round_trip() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let (stream, _) = push(&*queue, "ann", "a").await;
    let claim = take(&*queue).await.expect("it waits");
    queue.renew(&[]).await.expect("it runs");
    server.run::<String>(&["CONFIG", "RESETSTAT"]);
    assert!(queue.ack(&claim).await.expect("it runs"));
    let calls = ["xack", "xdel"].map(|command| server.calls(command));
    assert_eq!(calls, [1, 1]);
    let pending: (usize, redis::Value, redis::Value, redis::Value) =
        server.run(&["XPENDING", &stream, "director"]);
    assert_eq!((pending.0, server.run::<usize>(&["XLEN", &stream])), (0, 0));
    for key in ["meta:jobs:", "meta:accounts:"] {
        let key = format!("{key}{}", queue_name());
        assert_eq!(server.run::<usize>(&["EXISTS", &key]), 0, "{key}");
    }
}

#[tokio::test]
async fn a_job_needs_three_round_trips() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    // The scripts are loaded, and the fetcher has looked for messages of an earlier process.
    push(&*queue, "ann", "first").await;
    drain(&*queue).await;
    server.run::<String>(&["CONFIG", "RESETSTAT"]);
    push(&*queue, "ann", "a").await;
    let claim = take(&*queue).await.expect("it waits");
    assert!(queue.ack(&claim).await.expect("it runs"));
    assert_eq!(server.calls("evalsha"), 3, "push, take and ack");
}

#[tokio::test]
async fn messages_of_the_same_shard_are_preferred_on_request() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    for n in 0..3 {
        for shard in [1, 5] {
            let id = format!("{shard}-{n}");
            server.run::<String>(&["XADD", &stream(shard), "*", "account", "ann", "id", &id]);
        }
    }
    let mut taken = Vec::new();
    for _ in 0..6 {
        let options = TakeOptions {
            prefer_same_stream: true,
            ..TakeOptions::within(Duration::ZERO)
        };
        let claim = queue
            .take(&queue_name(), options)
            .await
            .expect("it runs")
            .expect("it waits");
        taken.push((claim.stream.to_string(), claim.moved));
    }
    let streams: Vec<&String> = taken.iter().map(|(stream, _)| stream).collect();
    assert!(
        streams[..3].iter().all(|stream| *stream == streams[0]),
        "{taken:?}"
    );
    let moved: Vec<bool> = taken.iter().map(|(_, moved)| *moved).collect();
    assert_eq!(moved, [true, false, false, true, false, false]);
}

#[tokio::test]
async fn shards_above_the_configured_number_are_emptied_and_forgotten() {
    let server = RedisServer::start();
    let many = server.open("many").await;
    let accounts: Vec<String> = (0..20).map(|n| format!("account-{n}")).collect();
    for account in &accounts {
        push(&*many, account, account).await;
    }
    let config = RedisQueueConfig {
        shards: 2,
        ..server.config("few")
    };
    let few = RedisQueue::open(config).await.expect("it runs");
    few.collect().await.expect("it runs");
    assert_eq!(drain(&few).await.len(), 20);
    few.collect().await.expect("it runs");
    let shards: String = server.run(&["HGET", "meta:queues", queue_name().as_str()]);
    assert_eq!(shards, "2");
    let streams: Vec<String> = server.run(&["KEYS", "input:*"]);
    assert_eq!(streams.len(), 2, "{streams:?}");
}

#[tokio::test]
async fn the_queues_of_accounts_with_any_name_are_apart() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let named = entry("anonymous", "a");
    let anonymous = QueueEntry {
        account: Account::ANONYMOUS,
        ..named.clone()
    };
    for job in [named.clone(), anonymous.clone()] {
        queue.push(&queue_name(), job).await.expect("it runs");
    }
    queue
        .remove(&queue_name(), &named.account, &named.id)
        .await
        .expect("it runs");
    let claim = take(&*queue).await.expect("it waits");
    assert_eq!(claim.entry, anonymous);
    assert!(take(&*queue).await.is_none());
}

#[tokio::test]
async fn a_queue_that_nobody_uses_is_forgotten_with_its_consumers() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    push(&*queue, "ann", "a").await;
    drain(&*queue).await;
    queue
        .remove_stale_consumers(Duration::from_secs(3600))
        .await
        .expect("it runs");
    assert_eq!(queue.queues().await.expect("it runs"), [queue_name()]);
    queue
        .remove_stale_consumers(Duration::ZERO)
        .await
        .expect("it runs");
    assert_eq!(
        queue.queues().await.expect("it runs"),
        Vec::<QueueName>::new()
    );
    assert_eq!(server.run::<Vec<String>>(&["KEYS", "input:*"]), [""; 0]);
    push(&*queue, "ann", "b").await;
    assert_eq!(drain(&*queue).await, ["b"]);
}

/// The reads do not cost more when many wait for messages.
#[tokio::test]
async fn callers_that_wait_together_are_served_by_few_reads() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let jobs = ["a", "b", "c", "d", "e", "f", "g", "h"];
    push(&*queue, "ann", "first").await;
    take(&*queue).await.expect("it waits");
    for job in jobs {
        push(&*queue, "ann", job).await;
    }
    let scripts = server.calls("evalsha");
    let claims = futures_util::future::join_all(jobs.map(|_| take(&*queue))).await;
    let scripts = server.calls("evalsha") - scripts;
    let ids: Vec<String> = claims
        .into_iter()
        .map(|claim| claim.expect("it waits").entry.id.to_string())
        .collect();
    assert_eq!(ids, jobs);
    assert!(scripts <= 3, "{scripts} reads");
}

/// An account with many messages does not delay the others.
#[tokio::test]
async fn a_read_of_several_messages_takes_one_of_each_shard_in_turn() {
    let server = RedisServer::start();
    let config = RedisQueueConfig {
        account_shards: 1,
        ..server.config("one")
    };
    let queue = RedisQueue::open(config).await.expect("the server runs");
    let mut shards = BTreeMap::new();
    for number in 0..100 {
        let account = format!("account{number}");
        let (stream, _) = push(&queue, &account, "first").await;
        shards.entry(stream).or_insert(account);
        if shards.len() == 3 {
            break;
        }
    }
    drain(&queue).await;
    let accounts: Vec<String> = shards.into_values().collect();
    for account in &accounts {
        for job in ["a", "b", "c", "d"] {
            push(&queue, account, job).await;
        }
    }
    let claims = futures_util::future::join_all([0; 6].map(|_| take(&queue))).await;
    let mut taken: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for claim in claims {
        let entry = claim.expect("it waits").entry;
        taken
            .entry(entry.account.to_string())
            .or_default()
            .push(entry.id.to_string());
    }
    let all = accounts
        .into_iter()
        .map(|account| (account, vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(taken, all.collect());
}

/// A message whose caller has gone is for the next caller.
#[tokio::test]
async fn a_message_is_not_lost_when_some_callers_have_gone() {
    let server = RedisServer::start();
    let queue = server.open("one").await;
    let mut gone: Vec<_> = (0..3)
        .map(|_| Box::pin(take_within(&*queue, Duration::from_secs(20))))
        .collect();
    for call in &mut gone {
        assert!(futures_util::FutureExt::now_or_never(call).is_none());
    }
    eventually("a read waits", || server.has_blocked_reader()).await;
    drop(gone);
    push(&*queue, "ann", "a").await;
    push(&*queue, "ann", "b").await;
    let claims = futures_util::future::join_all(
        [0; 2].map(|_| take_within(&*queue, Duration::from_secs(20))),
    )
    .await;
    let mut ids: Vec<String> = claims
        .into_iter()
        .map(|claim| claim.expect("it waits").entry.id.to_string())
        .collect();
    ids.sort();
    assert_eq!(ids, ["a", "b"]);
}
