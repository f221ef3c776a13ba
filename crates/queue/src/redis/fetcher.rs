//! The fetcher of a queue: the only task of the process that reads its messages. Callers of `take` send it a
//! request and get one message each. One read takes the messages of all callers that wait, so the number of reads
//! does not depend on the number of callers.
//!
//! A read is never interrupted: the server would have delivered a message that no process knows. A message whose
//! caller is gone goes to another one, or waits again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, RedisError, Value};
use tidegate_core::queue::{Claim, QueueError, QueueName, TakeOptions};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::connection::{Link, RESPONSE_TIMEOUT};
use super::keys::{self, GROUP};
use super::queue_servers::{DeliveryCount, QueueServers};
use super::reply::{self, Delivered};

/// How long a read waits for a message on one server.
const BLOCK: Duration = Duration::from_secs(1);
/// The same if there are several servers, which are read in turn.
const BLOCK_IN_TURN: Duration = Duration::from_millis(100);

/// The most messages of one read that does not wait.
const MAX_AT_ONCE: usize = 32;

/// A request for a message.
pub(super) struct FetchRequest {
    pub(super) options: TakeOptions,
    /// When the caller gives up.
    pub(super) until: Instant,
    pub(super) reply: oneshot::Sender<Result<Option<Claim>, QueueError>>,
}

/// Reads the messages of one queue.
pub(super) struct Fetcher {
    shared: Arc<QueueServers>,
    queue: QueueName,
    servers: Vec<ServerState>,
    /// The server that is read first by the next request.
    next_server: usize,
    /// The shard that is read first by the next request.
    next_shard: u16,
    /// The server and the shard of the last message.
    last: Option<(usize, u16)>,
}

/// What the fetcher knows of a server.
struct ServerState {
    /// The connection for reads that block.
    link: Link,
    /// How many shards the queue has there.
    shards: u16,
    /// Whether messages may have been delivered to this consumer that it does not know.
    needs_recovery: bool,
}

impl Fetcher {
    pub(super) fn new(shared: Arc<QueueServers>, queue: QueueName) -> Result<Self, QueueError> {
        let state = |backend: &super::backend::Backend| {
            let link = Link::new(backend.link.url(), BLOCK + RESPONSE_TIMEOUT);
            Ok(ServerState {
                link: link.map_err(|error| backend.error(&error))?,
                shards: shared.config.shards,
                needs_recovery: true,
            })
        };
        let servers = shared
            .backends
            .iter()
            .map(state)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            shared,
            queue,
            servers,
            next_server: 0,
            next_shard: 0,
            last: None,
        })
    }

    /// Answers requests, in their order.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<FetchRequest>) {
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                match requests.recv().await {
                    Some(request) => waiting.push_back(request),
                    None => return,
                }
            }
            while let Ok(request) = requests.try_recv() {
                waiting.push_back(request);
            }
            waiting.retain(|request| !request.reply.is_closed());
            self.serve(&mut waiting).await;
        }
    }

    /// Takes messages for the requests that wait, and answers those whose time is over.
    async fn serve(&mut self, waiting: &mut VecDeque<FetchRequest>) {
        let Some(options) = waiting.front().map(|first| first.options) else {
            return;
        };
        let is_alike = |request: &&FetchRequest| {
            request.options.prefer_same_stream == options.prefer_same_stream
        };
        let count = waiting.iter().take_while(is_alike).count();
        match self.take_now(options, count.min(MAX_AT_ONCE)).await {
            Ok(claims) if claims.is_empty() => {}
            Ok(claims) => {
                for claim in claims {
                    self.give(waiting, claim).await;
                }
                return;
            }
            Err(error) => {
                for request in waiting.drain(..) {
                    request.reply.send(Err(error.clone())).ok();
                }
                return;
            }
        }
        let now = Instant::now();
        let (over, rest): (Vec<_>, Vec<_>) =
            waiting.drain(..).partition(|request| request.until <= now);
        waiting.extend(rest);
        for request in over {
            request.reply.send(Ok(None)).ok();
        }
        if let Some(until) = waiting.iter().map(|request| request.until).min()
            && let Some(claim) = self.wait(until.saturating_duration_since(now)).await
        {
            self.give(waiting, claim).await;
        }
    }

    /// Gives a message to the first request whose caller is there.
    async fn give(&self, waiting: &mut VecDeque<FetchRequest>, claim: Claim) {
        let mut unwanted = claim;
        while let Some(request) = waiting.pop_front() {
            match request.reply.send(Ok(Some(unwanted))) {
                Ok(()) => return,
                Err(Ok(Some(claim))) => unwanted = claim,
                Err(_) => unreachable!("the reply is the message"),
            }
        }
        let put_back = self
            .shared
            .put_back(&unwanted, DeliveryCount::Restore)
            .await;
        if let Err(error) = put_back {
            // Upkeep finds the message again.
            tracing::warn!(queue = %self.queue, %error, "failed to put message back");
        }
    }

    /// Takes up to `limit` messages that wait on one of the servers. A server that fails is skipped; if all fail,
    /// the last error is returned.
    async fn take_now(
        &mut self,
        options: TakeOptions,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        let count = self.servers.len();
        let (mut is_readable, mut last_error) = (false, None);
        for offset in 0..count {
            let server = (self.next_server + offset) % count;
            match self.take_from(server, options, limit).await {
                Ok(claims) if claims.is_empty() => is_readable = true,
                Ok(claims) => {
                    self.next_server = (server + 1) % count;
                    return Ok(claims);
                }
                Err(error) => {
                    // The reply may be lost, and not the message.
                    self.servers[server].needs_recovery = true;
                    if count > 1 {
                        tracing::warn!(queue = %self.queue, %error, "failed to read queue on one of the servers");
                    }
                    last_error = Some(error);
                }
            }
        }
        match last_error {
            Some(error) if !is_readable => Err(error),
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// Takes up to `limit` messages of one server.
    async fn take_from(
        &mut self,
        server: usize,
        options: TakeOptions,
        limit: usize,
    ) -> Result<Vec<Claim>, QueueError> {
        self.recover(server).await?;
        let shared = Arc::clone(&self.shared);
        let backend = &shared.backends[server];
        loop {
            let first = match self.last {
                Some((last, shard)) if options.prefer_same_stream && last == server => shard,
                Some(_) | None => {
                    self.next_shard = self.next_shard.wrapping_add(1);
                    self.next_shard
                }
            };
            let arguments = [
                shared.config.shards.to_string(),
                shared.config.consumer.clone(),
                first.to_string(),
                limit.to_string(),
            ];
            let reply: Vec<Value> = backend
                .on_queue(&shared.scripts.take, &self.queue, &arguments)
                .await?;
            let (shards, delivered) =
                reply::taken(reply).map_err(|error| backend.error(&RedisError::from(error)))?;
            self.servers[server].shards = shards;
            if delivered.is_empty() {
                return Ok(Vec::new());
            }
            let claims = self.claim_all(server, delivered).await;
            if !claims.is_empty() {
                return Ok(claims);
            }
        }
    }

    /// Lets messages wait again that this consumer does not know of.
    async fn recover(&mut self, server: usize) -> Result<(), QueueError> {
        if !self.servers[server].needs_recovery {
            return Ok(());
        }
        let count = self.shared.recover(server, &self.queue).await?;
        if count > 0 {
            tracing::info!(queue = %self.queue, count, "recovered messages of an earlier read");
        }
        self.servers[server].needs_recovery = false;
        Ok(())
    }

    /// Waits for a message on the next server that can be read.
    async fn wait(&mut self, left: Duration) -> Option<Claim> {
        let count = self.servers.len();
        let longest = if count > 1 { BLOCK_IN_TURN } else { BLOCK };
        let server = self.next_server;
        self.next_server = (server + 1) % count;
        let block = left.min(longest).max(Duration::from_millis(1));
        match self.read_blocking(server, block).await {
            Ok(delivered) => {
                let mut claims = self.claim_all(server, delivered).await;
                // One read of several streams may deliver one message of each.
                for surplus in claims.drain(1.min(claims.len())..) {
                    let put_back = self.shared.put_back(&surplus, DeliveryCount::Restore).await;
                    self.servers[server].needs_recovery |= put_back.is_err();
                }
                claims.pop()
            }
            Err(error) => {
                self.servers[server].needs_recovery = true;
                tracing::debug!(queue = %self.queue, %error, "failed to wait for a message");
                // A server that is down fails at once.
                tokio::time::sleep(block.min(BLOCK_IN_TURN)).await;
                None
            }
        }
    }

    async fn read_blocking(
        &self,
        server: usize,
        block: Duration,
    ) -> Result<Vec<Delivered>, RedisError> {
        let ServerState { link, shards, .. } = &self.servers[server];
        let mut command = Cmd::new();
        command.arg("XREADGROUP").arg("GROUP").arg(GROUP);
        command.arg(&self.shared.config.consumer);
        command.arg("COUNT").arg(1);
        let milliseconds = u64::try_from(block.as_millis()).unwrap_or(u64::MAX);
        command.arg("BLOCK").arg(milliseconds).arg("STREAMS");
        for shard in 0..*shards {
            command.arg(&*keys::stream(&self.queue, shard));
        }
        for _ in 0..*shards {
            command.arg(">");
        }
        let mut linked = link.get().await?;
        match command.query_async(&mut linked.connection).await {
            Ok(value) => Ok(reply::read(value)?),
            Err(error) => {
                link.discard_after(&linked, &error).await;
                Err(error)
            }
        }
    }

    /// The claims of delivered messages.
    async fn claim_all(&mut self, server: usize, delivered: Vec<Delivered>) -> Vec<Claim> {
        let mut claims = Vec::with_capacity(delivered.len());
        for message in delivered {
            match self.claim(server, message).await {
                Ok(claim) => claims.extend(claim),
                Err(error) => {
                    tracing::warn!(queue = %self.queue, %error, "failed to handle message");
                    self.servers[server].needs_recovery = true;
                }
            }
        }
        claims
    }

    /// The claim of a delivered message. A message that names no job becomes a dead letter.
    async fn claim(
        &mut self,
        server: usize,
        delivered: Delivered,
    ) -> Result<Option<Claim>, QueueError> {
        let shard = delivered.shard;
        let claim = self.shared.claim(server, &self.queue, delivered).await?;
        Ok(claim.map(|claim| Claim {
            moved: self.last.replace((server, shard)) != Some((server, shard)),
            ..claim
        }))
    }
}
