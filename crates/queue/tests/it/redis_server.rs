//! A Redis server of a test, on a Unix socket in a folder of its own.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Connection, FromRedisValue};
use tempfile::TempDir;
use tidegate_core::queue::{Claim, Priority, Queue, QueueEntry, QueueName, TakeOptions};
use tidegate_core::{Account, JobId};
use tidegate_queue::redis::{RedisQueue, RedisQueueConfig};

/// How often a condition is checked.
const POLL: Duration = Duration::from_millis(5);
/// Longer than any condition takes.
const LONG: Duration = Duration::from_secs(30);

/// A running server. It is killed when it is dropped.
pub(crate) struct RedisServer {
    folder: TempDir,
    child: Child,
    arguments: Vec<String>,
}

impl RedisServer {
    /// Starts a server that keeps nothing when it stops.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server with additional arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        let child = spawn(&folder, &arguments);
        let server = Self {
            folder,
            child,
            arguments,
        };
        server.wait_until_ready();
        server
    }

    /// The address of the server.
    pub(crate) fn url(&self) -> String {
        format!("unix://{}/redis.sock", self.folder.path().display())
    }

    fn wait_until_ready(&self) {
        let until = std::time::Instant::now() + LONG;
        while self
            .connect()
            .and_then(|mut connection| redis::cmd("PING").query::<String>(&mut connection))
            .is_err()
        {
            assert!(
                std::time::Instant::now() < until,
                "the server does not start"
            );
            std::thread::sleep(POLL);
        }
    }

    fn connect(&self) -> redis::RedisResult<Connection> {
        redis::Client::open(self.url())?.get_connection()
    }

    /// Kills the server without warning.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was started");
    }

    /// Starts the server again, with what it has stored.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.folder, &self.arguments);
        self.wait_until_ready();
    }

    /// Runs a command, given as words.
    pub(crate) fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = Cmd::new();
        for word in words {
            command.arg(*word);
        }
        let mut connection = self.connect().expect("the server runs");
        command.query(&mut connection).expect("a valid command")
    }

    /// How often a command was called since the server started or the counters were reset.
    pub(crate) fn calls(&self, command: &str) -> usize {
        let info: String = self.run(&["INFO", "commandstats"]);
        let prefix = format!("cmdstat_{command}:calls=");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        let number = line.and_then(|rest| rest.split(',').next());
        number.map_or(0, |number| number.parse().expect("a number"))
    }

    /// The commands that the server gets from now on, one per line.
    pub(crate) fn monitor(&self) -> impl Iterator<Item = std::io::Result<String>> + use<> {
        let path = self.folder.path().join("redis.sock");
        let mut socket = UnixStream::connect(path).expect("the server runs");
        socket.set_read_timeout(Some(LONG)).expect("a socket");
        socket.write_all(b"MONITOR\r\n").expect("the server runs");
        let mut lines = BufReader::new(socket).lines();
        assert_eq!(lines.next().expect("a reply").expect("a line"), "+OK");
        lines
    }

    /// Whether a client waits for messages.
    pub(crate) fn has_blocked_reader(&self) -> bool {
        self.run::<String>(&["CLIENT", "LIST", "TYPE", "normal"])
            .lines()
            .any(|client| client.contains("flags=b") && client.contains("cmd=xreadgroup"))
    }

    /// A queue of the server.
    pub(crate) async fn open(&self, consumer: &str) -> Arc<RedisQueue> {
        Arc::new(
            RedisQueue::open(self.config(consumer))
                .await
                .expect("the server runs"),
        )
    }

    /// The default settings of a queue of the server.
    pub(crate) fn config(&self, consumer: &str) -> RedisQueueConfig {
        RedisQueueConfig::new(self.url().parse().expect("an address"), consumer)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn spawn(folder: &TempDir, arguments: &[String]) -> Child {
    let path = folder.path();
    Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .arg("--unixsocket")
        .arg(path.join("redis.sock"))
        .arg("--dir")
        .arg(path)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server is installed (`scripts/apt.sh redis-server`)")
}

/// The queue of most tests.
pub(crate) fn queue_name() -> QueueName {
    QueueName::new("input:prediction:vp-0123456789abcdef0123456789abcdef")
}

/// A stream of that queue.
pub(crate) fn stream(shard: u16) -> String {
    format!("{}:s{shard}", queue_name())
}

/// An entry for a job of `account`.
pub(crate) fn entry(account: &str, id: &str) -> QueueEntry {
    QueueEntry {
        account: Account::parse(account).expect("a name"),
        id: JobId::parse(id).expect("an id"),
        priority: Priority::Normal,
        deadline: None,
        details: None,
    }
}

/// Pushes a job; returns the stream and the message.
pub(crate) async fn push(queue: &dyn Queue, account: &str, id: &str) -> (String, String) {
    let place = queue.push(&queue_name(), entry(account, id)).await;
    let place = place.expect("the server runs").expect("a place");
    (place.stream.to_string(), place.message.to_string())
}

/// Takes the next entry, if one waits.
pub(crate) async fn take(queue: &dyn Queue) -> Option<Claim> {
    take_within(queue, Duration::ZERO).await
}

/// Takes the next entry, waits for it up to `timeout`.
pub(crate) async fn take_within(queue: &dyn Queue, timeout: Duration) -> Option<Claim> {
    let taken = queue
        .take(&queue_name(), TakeOptions::within(timeout))
        .await;
    taken.expect("the server runs")
}

/// Takes and acknowledges all entries; returns their ids.
pub(crate) async fn drain(queue: &dyn Queue) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(claim) = take(queue).await {
        ids.push(claim.entry.id.to_string());
        assert!(queue.ack(&claim).await.expect("the server runs"));
    }
    ids
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + LONG;
    while !condition() {
        assert!(tokio::time::Instant::now() < until, "{what}");
        tokio::time::sleep(POLL).await;
    }
}
