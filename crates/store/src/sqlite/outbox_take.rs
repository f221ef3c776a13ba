//! Claims the outbox messages that are due.
//!
//! A reader chooses the messages, the writer claims them, and a reader reads their bodies: the
//! writer, which every job needs, does not wait for large bodies. The index `letters_due` gives the
//! next receiver in one step, so the choice costs as many steps as there are receivers, however
//! many messages wait.

use std::collections::HashSet;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};
use tidegate_core::chain;
use tidegate_core::outbox::{OutboxMessage, TakeRequest};

use super::error::DbError;
use super::{jobs, outbox};
use crate::records::DueMessages;

/// The first receiver with pending messages, and when its next message is due.
pub(super) const FIRST_RECEIVER: &str =
    "SELECT receiver, next_at FROM letters WHERE settled_at IS NULL
     ORDER BY receiver, next_at LIMIT 1";
/// The receiver after this one.
pub(super) const NEXT_RECEIVER: &str =
    "SELECT receiver, next_at FROM letters WHERE settled_at IS NULL AND receiver > ?
     ORDER BY receiver, next_at LIMIT 1";
/// The pending messages to a receiver that no server has claimed.
pub(super) const UNCLAIMED: &str =
    "SELECT l.number, l.next_at, length(b.body) FROM letters l JOIN bodies b ON b.number = l.number
     WHERE l.settled_at IS NULL AND l.receiver = ?1 AND (l.holder IS NULL OR l.next_at <= ?2)
     ORDER BY l.next_at LIMIT ?3";

/// Chooses messages that are due.
pub(super) fn choose(conn: &Connection, request: &TakeRequest) -> Result<DueMessages, DbError> {
    let mut choice = Choice {
        request,
        now: outbox::after(Duration::ZERO),
        horizon: outbox::after(request.ahead),
        numbers: Vec::new(),
        bytes: 0,
        next_due: None,
    };
    let receivers = choice.receivers(conn)?;
    let part = request.total.messages / receivers.len().max(1);
    for (_, receiver) in &receivers {
        choice.add_messages(conn, receiver, part.max(1))?;
    }
    let now = choice.now;
    let until = |at: i64| Duration::from_micros(u64::try_from(at - now).unwrap_or_default());
    Ok(DueMessages {
        numbers: choice.numbers,
        next_due: choice.next_due.map(until),
    })
}

struct Choice<'a> {
    request: &'a TakeRequest,
    now: i64,
    /// Messages that are due until then are taken.
    horizon: i64,
    numbers: Vec<i64>,
    bytes: usize,
    next_due: Option<i64>,
}

impl Choice<'_> {
    /// The receivers with messages that are due, the longest due first.
    fn receivers(&mut self, conn: &Connection) -> Result<Vec<(i64, String)>, DbError> {
        let skip: HashSet<&str> = self.request.skip.iter().map(String::as_str).collect();
        let mut receivers = Vec::new();
        let mut next: Option<(String, i64)> = conn
            .prepare_cached(FIRST_RECEIVER)?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let mut statement = conn.prepare_cached(NEXT_RECEIVER)?;
        while let Some((receiver, next_at)) = next {
            next = statement
                .query_row([&receiver], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            if skip.contains(receiver.as_str()) {
                continue;
            }
            if next_at <= self.horizon {
                receivers.push((next_at, receiver));
            } else {
                self.due_later(next_at);
            }
        }
        receivers.sort_unstable();
        Ok(receivers)
    }

    /// Adds up to `part` messages to one receiver.
    fn add_messages(
        &mut self,
        conn: &Connection,
        receiver: &str,
        part: usize,
    ) -> Result<(), DbError> {
        let limits = self.request.per_receiver;
        let part = part.min(limits.messages);
        let mut statement = conn.prepare_cached(UNCLAIMED)?;
        // One more, to see when the next one is due.
        let rows = jobs::count(part.saturating_add(1));
        let mut found = statement.query(params![receiver, self.now, rows])?;
        let (mut messages, mut bytes) = (0, 0);
        while let Some(row) = found.next()? {
            let next_at: i64 = row.get(1)?;
            let is_within_limits = messages < part
                && bytes < limits.bytes
                && self.numbers.len() < self.request.total.messages
                && self.bytes < self.request.total.bytes;
            if next_at > self.horizon || !is_within_limits {
                self.due_later(next_at);
                break;
            }
            let size = usize::try_from(row.get::<_, i64>(2)?).unwrap_or_default();
            self.numbers.push(row.get(0)?);
            self.bytes += size;
            messages += 1;
            bytes += size;
        }
        Ok(())
    }

    fn due_later(&mut self, at: i64) {
        self.next_due = Some(self.next_due.map_or(at, |earliest| earliest.min(at)));
    }
}

/// Claims the chosen messages; returns those that no other server has claimed meanwhile.
pub(super) fn claim(
    conn: &Connection,
    request: &TakeRequest,
    numbers: &[i64],
) -> Result<Vec<i64>, DbError> {
    let mut statement = conn.prepare_cached(
        "UPDATE letters SET holder = ?1, next_at = ?2
         WHERE number = ?3 AND settled_at IS NULL AND next_at <= ?4 AND (holder IS NULL OR next_at <= ?5)",
    )?;
    let ends_at = outbox::after(request.claim.lasts);
    let (horizon, now) = (outbox::after(request.ahead), outbox::after(Duration::ZERO));
    let mut claimed = Vec::with_capacity(numbers.len());
    for number in numbers {
        let values = params![request.claim.holder, ends_at, number, horizon, now];
        if statement.execute(values)? > 0 {
            claimed.push(*number);
        }
    }
    Ok(claimed)
}

/// Reads claimed messages. One that cannot be read is logged and left until its claim ends: it must
/// not keep the others from being sent.
pub(super) fn read(
    conn: &Connection,
    request: &TakeRequest,
    numbers: &[i64],
) -> Result<Vec<OutboxMessage>, DbError> {
    let mut messages = Vec::with_capacity(numbers.len());
    for number in numbers {
        match outbox::read(conn, *number) {
            Ok(message) => messages.extend(message.map(|message| OutboxMessage {
                claim: Some(request.claim.clone()),
                ..message
            })),
            Err(error @ DbError::Corrupt(_)) => {
                tracing::error!(number, error = %chain(&error), "failed to read outbox message");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(messages)
}
