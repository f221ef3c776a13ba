//! A pooler of connections like pgbouncer in transaction mode: each transaction of a client gets the next of its
//! connections to PostgreSQL.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use tidegate_store::PostgresUrl;
use tidegate_store::conformance::postgres_server::TestDatabase;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

/// How the pooler treats its connections.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolerMode {
    /// The number of connections to PostgreSQL.
    pub(crate) sessions: usize,
    /// Whether each transaction ends with `DISCARD ALL`.
    pub(crate) discards: bool,
}

/// A running pooler. It ends when it is dropped.
pub(crate) struct TransactionPooler {
    folder: TempDir,
    database: String,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    mode: PoolerMode,
    server: PathBuf,
    sessions: Mutex<VecDeque<UnixStream>>,
    returned: Notify,
    opened: AtomicUsize,
    /// Runs of statements that have a name.
    named_runs: AtomicUsize,
}

impl TransactionPooler {
    pub(crate) fn start(database: &TestDatabase, mode: PoolerMode) -> Self {
        let address = database.address();
        let (rest, host) = address.split_once("?host=").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(socket_in(folder.path())).unwrap();
        let shared = Arc::new(Shared {
            mode,
            server: socket_in(Path::new(host)),
            sessions: Mutex::default(),
            returned: Notify::new(),
            opened: AtomicUsize::new(0),
            named_runs: AtomicUsize::new(0),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, Arc::clone(&shared)));
        Self {
            folder,
            database: rest.to_owned(),
            shared,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self) -> PostgresUrl {
        let url = format!("{}?host={}", self.database, self.folder.path().display());
        url.parse().unwrap()
    }

    /// How many times clients have run a statement that has a name.
    pub(crate) fn named_runs(&self) -> usize {
        self.shared.named_runs.load(Ordering::Relaxed)
    }
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join(".s.PGSQL.5432")
}

async fn accept(listener: UnixListener, shared: Arc<Shared>) {
    let mut clients = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        // A client that disconnects is an error of its reads.
        clients.spawn(async move { shared.serve(client).await.ok() });
    }
}

impl Shared {
    async fn serve(&self, mut client: UnixStream) -> std::io::Result<()> {
        let startup = read_startup(&mut client).await?;
        let (session, greeting) = self.open(&startup).await?;
        if self.opened.fetch_add(1, Ordering::Relaxed) < self.mode.sessions {
            self.sessions.lock().await.push_back(session);
        }
        client.write_all(&greeting).await?;
        loop {
            let first = read_message(&mut client).await?;
            if first.kind == b'X' {
                return Ok(());
            }
            let mut session = self.take().await;
            self.transact(&mut client, &mut session, first).await?;
            if self.mode.discards {
                discard(&mut session).await?;
            }
            self.sessions.lock().await.push_back(session);
            self.returned.notify_one();
        }
    }

    /// A connection to PostgreSQL, and all messages up to the one that it is ready.
    async fn open(&self, startup: &[u8]) -> std::io::Result<(UnixStream, Vec<u8>)> {
        let mut session = UnixStream::connect(&self.server).await?;
        session.write_all(startup).await?;
        let mut greeting = Vec::new();
        loop {
            let message = read_message(&mut session).await?;
            greeting.extend(message.bytes());
            if message.kind == b'Z' {
                return Ok((session, greeting));
            }
        }
    }

    async fn take(&self) -> UnixStream {
        loop {
            if let Some(session) = self.sessions.lock().await.pop_front() {
                self.returned.notify_one();
                return session;
            }
            self.returned.notified().await;
        }
    }

    /// Passes messages on until no transaction is open and no reply is missing.
    async fn transact(
        &self,
        client: &mut UnixStream,
        session: &mut UnixStream,
        first: Message,
    ) -> std::io::Result<()> {
        let mut missing = self.forward(session, &first).await?;
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = session.split();
        loop {
            tokio::select! {
                biased;
                // Both sides send whole messages in one write, so a message that has begun is complete.
                ready = from_client.readable() => {
                    ready?;
                    let message = read_message(&mut from_client).await?;
                    missing += self.forward(&mut to_server, &message).await?;
                }
                ready = from_server.readable() => {
                    ready?;
                    let message = read_message(&mut from_server).await?;
                    to_client.write_all(&message.bytes()).await?;
                    if message.kind == b'Z' {
                        missing -= 1;
                        if missing == 0 && message.body == b"I" {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// Sends a message to PostgreSQL; returns how many times it will say that it is ready.
    async fn forward(
        &self,
        to: &mut (impl AsyncWriteExt + Unpin),
        message: &Message,
    ) -> std::io::Result<usize> {
        // Bind: the name of the portal, then that of the statement.
        if message.kind == b'B' && message.body.split(|byte| *byte == 0).nth(1) != Some(b"") {
            self.named_runs.fetch_add(1, Ordering::Relaxed);
        }
        to.write_all(&message.bytes()).await?;
        Ok(usize::from(matches!(message.kind, b'Q' | b'S')))
    }
}

async fn discard(session: &mut UnixStream) -> std::io::Result<()> {
    let query = Message {
        kind: b'Q',
        body: b"DISCARD ALL\0".to_vec(),
    };
    session.write_all(&query.bytes()).await?;
    while read_message(session).await?.kind != b'Z' {}
    Ok(())
}

/// A message of the protocol.
struct Message {
    kind: u8,
    body: Vec<u8>,
}

impl Message {
    fn bytes(&self) -> Vec<u8> {
        let length = u32::try_from(self.body.len() + 4).unwrap();
        let mut bytes = vec![self.kind];
        bytes.extend(length.to_be_bytes());
        bytes.extend(&self.body);
        bytes
    }
}

async fn read_message(from: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<Message> {
    let kind = from.read_u8().await?;
    let mut body = vec![0; from.read_u32().await? as usize - 4];
    from.read_exact(&mut body).await?;
    Ok(Message { kind, body })
}

/// The first message of a client, which has no kind.
async fn read_startup(client: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let length = client.read_u32().await?;
    let mut startup = length.to_be_bytes().to_vec();
    startup.resize(length as usize, 0);
    client.read_exact(&mut startup[4..]).await?;
    Ok(startup)
}
