//! `tidegate dead-letters`: lists, replays and drops the dead letters of the queues in Redis.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use jiff::Timestamp;
use serde::Serialize;
use tidegate_core::queue::{DeadLetter, Queue};
use tidegate_queue::redis::{RedisOpenError, RedisQueue, RedisQueueConfig, RedisUrls};
use tidegate_service::closest_name;

use crate::cli::{ChosenDeadLetters, DeadLettersArgs, DeadLettersCommand, ListDeadLettersArgs};
use crate::commands::table::{columns, short_duration};
use crate::usage_error::UsageError;

/// The name of this process among the consumers. It takes no messages.
const CONSUMER: &str = "dead-letters";
/// The most dead letters that are read at once.
const PAGE: usize = 1000;

pub(crate) async fn dead_letters(args: &DeadLettersArgs) -> anyhow::Result<ExitCode> {
    let queue = open(args.redis.as_ref()).await?;
    match &args.command {
        DeadLettersCommand::List(args) => list(&queue, args).await,
        DeadLettersCommand::Replay(args) => replay(&queue, &args.chosen).await,
        DeadLettersCommand::Drop(args) => drop_letters(&queue, &args.chosen).await,
    }
}

async fn open(urls: Option<&RedisUrls>) -> anyhow::Result<RedisQueue> {
    let urls = urls.ok_or_else(|| {
        UsageError::new("the address of the Redis server is missing")
            .hint("give it with --redis redis://HOST:PORT, or set TIDEGATE_REDIS")
    })?;
    let opened = RedisQueue::open(RedisQueueConfig::new(urls.clone(), CONSUMER)).await;
    opened.map_err(|error| {
        let usage = UsageError::new(error.to_string());
        match error {
            RedisOpenError::Unreachable { .. } => usage.transient().into(),
            RedisOpenError::Unusable { .. } => usage.hint("check --redis").into(),
        }
    })
}

/// A dead letter in the output of `list --json`.
#[derive(Serialize)]
struct LetterRow<'a> {
    id: &'a str,
    at: Timestamp,
    queue: &'a str,
    reason: &'a str,
    size: usize,
    account: Option<&'a str>,
    job: Option<&'a str>,
    model: Option<&'a str>,
    version: Option<&'a str>,
    data: &'a str,
}

impl<'a> From<&'a DeadLetter> for LetterRow<'a> {
    fn from(letter: &'a DeadLetter) -> Self {
        let entry = letter.entry.as_ref();
        let target = entry.and_then(|entry| Some(&entry.details.as_ref()?.target));
        Self {
            id: &letter.id,
            at: letter.at,
            queue: letter.queue.as_str(),
            reason: &letter.reason,
            size: letter.size,
            account: entry.map(|entry| entry.account.as_str()),
            job: entry.map(|entry| entry.id.as_str()),
            model: target.map(|target| target.model.as_str()),
            version: target.map(|target| target.version.as_str()),
            data: &letter.data,
        }
    }
}

async fn list(queue: &RedisQueue, args: &ListDeadLettersArgs) -> anyhow::Result<ExitCode> {
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let mut letters = read(queue, limit.saturating_add(1)).await?;
    let has_more = letters.len() > limit;
    letters.truncate(limit);
    let text = if args.json {
        let rows: Vec<LetterRow<'_>> = letters.iter().map(LetterRow::from).collect();
        serde_json::to_string_pretty(&rows)? + "\n"
    } else {
        table(&letters, Timestamp::now())
    };
    // Write errors are ignored, because the reader may close the pipe early.
    std::io::stdout().lock().write_all(text.as_bytes()).ok();
    let mut err = std::io::stderr().lock();
    if letters.is_empty() {
        writeln!(err, "no dead letters").ok();
    }
    if has_more {
        writeln!(err, "there are more; --limit shows them").ok();
    }
    Ok(ExitCode::SUCCESS)
}

/// One line per dead letter.
fn table(letters: &[DeadLetter], now: Timestamp) -> String {
    if letters.is_empty() {
        return String::new();
    }
    let row = |letter: &DeadLetter| {
        let of_entry = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let LetterRow { job, model, .. } = LetterRow::from(letter);
        let age = now.duration_since(letter.at).as_secs_f64();
        vec![
            letter.id.clone(),
            short_duration(age),
            of_entry(job),
            of_entry(model),
            format!("{} B", letter.size),
            letter.queue.to_string(),
            letter.reason.clone(),
        ]
    };
    let head = ["ID", "AGE", "JOB", "MODEL", "SIZE", "QUEUE", "REASON"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(letters.iter().map(row));
    columns(&rows)
}

async fn replay(queue: &RedisQueue, chosen: &ChosenDeadLetters) -> anyhow::Result<ExitCode> {
    let letters = choose(queue, chosen).await?;
    let (named, unnamed): (Vec<_>, Vec<_>) = letters
        .into_iter()
        .partition(|letter| letter.entry.is_some());
    if let Some(letter) = unnamed.first().filter(|_| !chosen.all) {
        let message = format!(
            "dead letter `{}` names no job, so it cannot be replayed: {}",
            letter.id, letter.reason
        );
        let hint = format!("remove it with `tidegate dead-letters drop {}`", letter.id);
        return Err(UsageError::new(message).hint(hint).into());
    }
    for letter in &named {
        let replayed = queue.replay_dead_letter(&letter.id).await;
        let is_replayed =
            replayed.with_context(|| format!("failed to replay dead letter `{}`", letter.id))?;
        print_done(&letter.id, is_replayed);
    }
    if !unnamed.is_empty() {
        let count = unnamed.len();
        let mut err = std::io::stderr().lock();
        writeln!(err, "{count} dead letters name no job and were left").ok();
    }
    Ok(ExitCode::SUCCESS)
}

async fn drop_letters(queue: &RedisQueue, chosen: &ChosenDeadLetters) -> anyhow::Result<ExitCode> {
    for letter in choose(queue, chosen).await? {
        let dropped = queue.drop_dead_letter(&letter.id).await;
        let is_dropped =
            dropped.with_context(|| format!("failed to drop dead letter `{}`", letter.id))?;
        print_done(&letter.id, is_dropped);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_done(id: &str, is_done: bool) {
    if is_done {
        writeln!(std::io::stdout().lock(), "{id}").ok();
    } else {
        let mut err = std::io::stderr().lock();
        writeln!(err, "dead letter {id} was removed by another process").ok();
    }
}

/// The dead letters that the command line names. All are found before any is changed.
async fn choose(queue: &RedisQueue, chosen: &ChosenDeadLetters) -> anyhow::Result<Vec<DeadLetter>> {
    let letters = read(queue, usize::MAX).await?;
    if chosen.all {
        return Ok(letters);
    }
    let mut found: Vec<DeadLetter> = Vec::new();
    for id in &chosen.ids {
        let matching = letters.iter().filter(|letter| is_named(letter, id));
        let before = found.len();
        found.extend(matching.cloned());
        if found.len() == before {
            return Err(unknown(id, &letters).into());
        }
    }
    Ok(found)
}

/// Whether the text is the id of a dead letter, or of its job.
fn is_named(letter: &DeadLetter, id: &str) -> bool {
    letter.id == id
        || letter
            .entry
            .as_ref()
            .is_some_and(|entry| entry.id.as_str() == id)
}

fn unknown(id: &str, letters: &[DeadLetter]) -> UsageError {
    let ids = letters.iter().flat_map(|letter| {
        let job = letter.entry.as_ref().map(|entry| entry.id.as_str());
        [Some(letter.id.as_str()), job].into_iter().flatten()
    });
    let hint = match closest_name(id, ids) {
        Some(similar) => format!("did you mean `{similar}`?"),
        None => "`tidegate dead-letters list` lists them".to_owned(),
    };
    UsageError::new(format!("there is no dead letter `{id}`")).hint(hint)
}

/// Dead letters, oldest first, at most `limit`.
async fn read(queue: &RedisQueue, limit: usize) -> anyhow::Result<Vec<DeadLetter>> {
    let mut letters: Vec<DeadLetter> = Vec::new();
    while letters.len() < limit {
        let after = letters.last().map(|letter| letter.id.clone());
        let page = PAGE.min(limit - letters.len());
        let next = queue
            .dead_letters(after.as_deref(), page)
            .await
            .context("failed to read the dead letters")?;
        if next.is_empty() {
            break;
        }
        letters.extend(next);
    }
    Ok(letters)
}
