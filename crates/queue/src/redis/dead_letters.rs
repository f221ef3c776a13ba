//! Dead letters on the servers.

use jiff::Timestamp;
use redis::Pipeline;
use tidegate_core::queue::{DeadLetter, QueueEntry, QueueError, QueueName};

use super::backend::Backend;
use super::keys::DEAD_LETTERS;
use super::message;
use super::queue_servers::QueueServers;

/// The most characters of a message that a dead letter shows.
const SHOWN: usize = 1000;

/// Texts that are not UTF-8 must not hide the other letters: a message may contain anything, and a long one is cut
/// between two bytes.
type Messages = Vec<(String, Vec<Vec<u8>>)>;

impl QueueServers {
    /// Dead letters of all servers. The id begins with the number of the server.
    pub(super) async fn dead_letters(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, QueueError> {
        let (first, mut start) = match after.and_then(parse_id) {
            Some((server, message)) => (server, format!("({message}")),
            None => (0, "-".to_owned()),
        };
        let mut letters = Vec::new();
        for backend in self.backends.iter().skip(first) {
            let mut commands = Pipeline::new();
            let left = limit - letters.len();
            let range = commands
                .cmd("XRANGE")
                .arg(DEAD_LETTERS)
                .arg(&start)
                .arg("+");
            range.arg("COUNT").arg(left);
            let (messages,): (Messages,) = run(backend, &commands).await?;
            let found = messages
                .into_iter()
                .map(|(id, fields)| letter(backend.index, &id, &fields));
            letters.extend(found);
            if letters.len() >= limit {
                break;
            }
            start = "-".to_owned();
        }
        Ok(letters)
    }

    /// The dead letter with this id.
    pub(super) async fn dead_letter(&self, id: &str) -> Result<Option<DeadLetter>, QueueError> {
        let Some((backend, message)) = self.letter_place(id) else {
            return Ok(None);
        };
        let mut commands = Pipeline::new();
        commands
            .cmd("XRANGE")
            .arg(DEAD_LETTERS)
            .arg(message)
            .arg(message);
        let (messages,): (Messages,) = run(backend, &commands).await?;
        let found = messages.first();
        Ok(found.map(|(id, fields)| letter(backend.index, id, fields)))
    }

    pub(super) async fn drop_dead_letter(&self, id: &str) -> Result<bool, QueueError> {
        let Some((backend, message)) = self.letter_place(id) else {
            return Ok(false);
        };
        let mut commands = Pipeline::new();
        commands.cmd("XDEL").arg(DEAD_LETTERS).arg(message);
        let (count,): (i64,) = run(backend, &commands).await?;
        Ok(count == 1)
    }

    fn letter_place<'a>(&self, id: &'a str) -> Option<(&Backend, &'a str)> {
        let (server, message) = parse_id(id)?;
        Some((self.backends.get(server)?, message))
    }
}

async fn run<T: redis::FromRedisValue>(
    backend: &Backend,
    commands: &Pipeline,
) -> Result<T, QueueError> {
    let reply = backend.pipeline(commands).await;
    reply.map_err(|error| backend.error(&error))
}

/// The number of the server and the id of the message. Other texts would be commands' syntax errors.
fn parse_id(id: &str) -> Option<(usize, &str)> {
    let (server, message) = id.split_once('.')?;
    let (time, number) = message.split_once('-')?;
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    (is_number(time) && is_number(number)).then_some((server.parse().ok()?, message))
}

fn letter(server: usize, message: &str, fields: &[Vec<u8>]) -> DeadLetter {
    let bytes = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        let pair = pairs.find(|pair| pair[0] == name.as_bytes());
        pair.map_or(&[][..], |pair| pair[1].as_slice())
    };
    let field = |name: &str| String::from_utf8_lossy(bytes(name));
    let time = message.split('-').next().and_then(|time| time.parse().ok());
    let at = time.and_then(|time| Timestamp::from_millisecond(time).ok());
    let data = field("data");
    DeadLetter {
        id: format!("{server}.{message}"),
        queue: QueueName::new(&field("queue")),
        entry: entry(bytes("data")),
        reason: field("reason").into_owned(),
        at: at.unwrap_or_default(),
        data: data.chars().take(SHOWN).collect(),
        // Letters of earlier versions have no size.
        size: field("size").parse().unwrap_or(data.len()),
    }
}

/// The entry of the message, if it names a job.
fn entry(data: &[u8]) -> Option<QueueEntry> {
    let fields: Vec<String> = serde_json::from_slice(data).ok()?;
    let fields: Vec<Vec<u8>> = fields.into_iter().map(String::into_bytes).collect();
    message::decode(&fields).ok()
}
