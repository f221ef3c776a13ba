//! Claims the outbox messages that are due.
//!
//! The messages are chosen, then claimed, then read: the transaction that claims does not wait for large
//! bodies. The index `outbox_due` gives the next receiver in one step, so the choice costs as many steps as
//! there are receivers, however many messages wait. Of several messages about one job, one is sent at a
//! time, in their order.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::JobId;
use tidegate_core::outbox::{MessageClaim, OutboxMessage, TakeRequest};
use tokio_postgres::{Client, Row};

use super::error::PgError;
use super::outbox::receiver_key;
use super::query::{
    bigint, bigints, count, execute, first, micros, now, rows, text, texts, unsigned,
};
use super::rows as records;
use super::text::escape;
use crate::columns;
use crate::records::DueMessages;

/// The clock of the database, and the receivers with the time at which the next message to each is due.
pub(super) const RECEIVERS: &str = "WITH RECURSIVE receivers AS (
         (SELECT receiver, next_at FROM tidegate.outbox WHERE settled_at IS NULL ORDER BY receiver, next_at LIMIT 1)
         UNION ALL
         SELECT next.receiver, next.next_at FROM receivers r CROSS JOIN LATERAL (
             SELECT o.receiver, o.next_at FROM tidegate.outbox o WHERE o.settled_at IS NULL AND o.receiver > r.receiver
             ORDER BY o.receiver, o.next_at LIMIT 1) next)
     SELECT receiver, next_at FROM receivers";
const CLOCK: &str = concat!("SELECT ", now!());
/// The message `o` is not under a claim, and no earlier message about its job is.
macro_rules! is_unclaimed {
    ($now:literal) => {
        concat!(
            "o.settled_at IS NULL AND (o.holder IS NULL OR o.next_at <= ",
            $now,
            ") AND NOT EXISTS (
                 SELECT 1 FROM tidegate.outbox e WHERE e.job = o.job AND e.account = o.account AND e.interim
                   AND e.number < o.number AND e.settled_at IS NULL AND e.holder IS NOT NULL AND e.next_at > ",
            $now,
            ")"
        )
    };
}
/// The first messages to each of these receivers.
const UNCLAIMED: &str = concat!(
    "SELECT r.place, m.number, m.next_at, m.size
     FROM unnest($1::text[]) WITH ORDINALITY r (receiver, place) CROSS JOIN LATERAL (
         SELECT o.number, o.next_at, octet_length(b.body)::bigint AS size
         FROM tidegate.outbox o JOIN tidegate.outbox_bodies b ON b.number = o.number
         WHERE o.receiver = r.receiver AND ",
    is_unclaimed!("$2"),
    " ORDER BY o.next_at, o.number LIMIT $3) m ORDER BY r.place, m.next_at, m.number"
);

/// Chooses messages that are due.
pub(super) async fn choose(client: &Client, request: &TakeRequest) -> Result<DueMessages, PgError> {
    let clock = first(client, CLOCK, &[]).await?;
    let now: i64 = clock
        .map(|row| row.try_get(0))
        .transpose()?
        .unwrap_or_default();
    let mut choice = Choice {
        request,
        now,
        horizon: now.saturating_add(micros(request.ahead)),
        numbers: Vec::new(),
        bytes: 0,
        next_due: None,
    };
    let receivers = choice.receivers(client).await?;
    let part = request.total.messages / receivers.len().max(1);
    choice.add_messages(client, &receivers, part.max(1)).await?;
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
    async fn receivers(&mut self, client: &Client) -> Result<Vec<String>, PgError> {
        let skip: HashSet<String> = self
            .request
            .skip
            .iter()
            .map(|receiver| escape(receiver_key(receiver)).into_owned())
            .collect();
        let mut receivers = Vec::new();
        for row in rows(client, RECEIVERS, &[]).await? {
            let (receiver, next_at): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
            if skip.contains(&receiver) {
                continue;
            }
            if next_at <= self.horizon {
                receivers.push((next_at, receiver));
            } else {
                self.due_later(next_at);
            }
        }
        receivers.sort_unstable();
        Ok(receivers
            .into_iter()
            .map(|(_, receiver)| receiver)
            .collect())
    }

    /// Adds up to `part` messages to each receiver.
    async fn add_messages(
        &mut self,
        client: &Client,
        receivers: &[String],
        part: usize,
    ) -> Result<(), PgError> {
        if receivers.is_empty() {
            return Ok(());
        }
        let part = part.min(self.request.per_receiver.messages);
        // One more, to see when the next one is due.
        let limit = count(part.saturating_add(1));
        let params = [texts(&receivers), bigint(&self.now), bigint(&limit)];
        let mut current = ReceiverPart::default();
        for row in rows(client, UNCLAIMED, &params).await? {
            let place: i64 = row.try_get(0)?;
            if current.place != place {
                current = ReceiverPart {
                    place,
                    ..ReceiverPart::default()
                };
            }
            self.add(&mut current, part, &row)?;
        }
        Ok(())
    }

    fn add(&mut self, current: &mut ReceiverPart, part: usize, row: &Row) -> Result<(), PgError> {
        let next_at = row.try_get(2)?;
        let limits = self.request.per_receiver;
        let is_within_limits = current.messages < part
            && current.bytes < limits.bytes
            && self.numbers.len() < self.request.total.messages
            && self.bytes < self.request.total.bytes;
        if current.is_full || next_at > self.horizon || !is_within_limits {
            current.is_full = true;
            self.due_later(next_at);
            return Ok(());
        }
        let size = unsigned(row.try_get(3)?);
        self.numbers.push(row.try_get(1)?);
        self.bytes += size;
        current.messages += 1;
        current.bytes += size;
        Ok(())
    }

    fn due_later(&mut self, at: i64) {
        self.next_due = Some(self.next_due.map_or(at, |earliest| earliest.min(at)));
    }
}

/// What is taken of the messages to one receiver.
#[derive(Default)]
struct ReceiverPart {
    place: i64,
    messages: usize,
    bytes: usize,
    is_full: bool,
}

/// Claims the chosen messages; returns those that no other server has claimed meanwhile.
pub(super) async fn claim(
    client: &Client,
    request: &TakeRequest,
    numbers: &[i64],
) -> Result<Vec<i64>, PgError> {
    const CLAIM: &str = concat!(
        "WITH clock AS MATERIALIZED (SELECT ",
        now!(),
        " AS now),
         chosen AS MATERIALIZED (
             SELECT o.number FROM tidegate.outbox o, clock
             WHERE o.number = ANY ($1) AND o.next_at <= clock.now + $2 AND ",
        is_unclaimed!("clock.now"),
        " FOR UPDATE OF o SKIP LOCKED)
         UPDATE tidegate.outbox o SET holder = $3, next_at = clock.now + $4 FROM chosen, clock
         WHERE o.number = chosen.number RETURNING o.number"
    );
    drop_outdated(client, numbers).await?;
    let claimed = rows(
        client,
        CLAIM,
        &[
            bigints(&numbers),
            bigint(&micros(request.ahead)),
            text(&escape(&request.claim.holder)),
            bigint(&micros(request.claim.lasts)),
        ],
    )
    .await?;
    let claimed: HashSet<i64> = claimed
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    Ok(numbers
        .iter()
        .copied()
        .filter(|number| claimed.contains(number))
        .collect())
}

/// Deletes interim messages whose sender is gone and that a later message about their job follows: both
/// would be sent at the same time.
async fn drop_outdated(client: &Client, numbers: &[i64]) -> Result<(), PgError> {
    const DROP: &str = concat!(
        "DELETE FROM tidegate.outbox o
         WHERE o.number = ANY ($1) AND o.interim AND o.settled_at IS NULL AND (o.holder IS NULL OR o.next_at <= ",
        now!(),
        ") AND EXISTS (
             SELECT 1 FROM tidegate.outbox later
             WHERE later.account = o.account AND later.job = o.job AND later.number > o.number)"
    );
    execute(client, DROP, &[bigints(&numbers)]).await?;
    Ok(())
}

/// Reads claimed messages. One that cannot be read is logged and left until its claim ends: it must
/// not keep the others from being sent.
pub(super) async fn read(
    client: &Client,
    claim: &MessageClaim,
    numbers: &[i64],
) -> Result<Vec<OutboxMessage>, PgError> {
    const READ: &str = "SELECT o.id, o.account, o.job, o.model, o.receiver, o.hook, b.body, o.created_at, o.retry_until, o.attempts, o.number
         FROM tidegate.outbox o JOIN tidegate.outbox_bodies b ON b.number = o.number WHERE o.number = ANY ($1)";
    let mut found = HashMap::new();
    for row in rows(client, READ, &[bigints(&numbers)]).await? {
        let number: i64 = row.try_get(10)?;
        match message(&row, claim) {
            Ok(message) => drop(found.insert(number, message)),
            Err(error @ PgError::Corrupt(_)) => {
                tracing::error!(number, %error, "failed to read outbox message");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(numbers
        .iter()
        .filter_map(|number| found.remove(number))
        .collect())
}

fn message(row: &Row, claim: &MessageClaim) -> Result<OutboxMessage, PgError> {
    Ok(OutboxMessage {
        id: records::text(row, 0)?,
        account: columns::account(row.try_get(1)?)?,
        job: JobId::parse(row.try_get(2)?).map_err(columns::corrupt)?,
        model: records::text(row, 3)?,
        receiver: records::text(row, 4)?,
        hook: columns::json(row.try_get(5)?)?,
        body: Bytes::from(row.try_get::<_, Vec<u8>>(6)?),
        created_at: columns::timestamp(row.try_get(7)?)?,
        retry_until: records::timestamp(row, 8)?,
        attempts: records::unsigned(row, 9)?,
        claim: Some(claim.clone()),
    })
}
