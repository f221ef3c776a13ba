//! The replies of the scripts.

use redis::{ParsingError, Value, from_redis_value};
use tidegate_core::queue::QueueName;

use super::keys::parse_stream;

/// A message that was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delivered {
    pub(super) shard: u16,
    pub(super) message: String,
    /// Names and values in turn.
    pub(super) fields: Vec<Vec<u8>>,
    pub(super) deliveries: u32,
}

/// The reply of `take.lua`: the number of shards, and the messages.
pub(super) fn taken(reply: Vec<Value>) -> Result<(u16, Vec<Delivered>), ParsingError> {
    let mut reply = reply.into_iter();
    let shards = from_redis_value(reply.next().unwrap_or(Value::Nil))?;
    let messages = reply.map(|message| delivered(from_redis_value(message)?));
    Ok((shards, messages.collect::<Result<_, _>>()?))
}

/// A message of `take.lua` or `lost.lua`.
pub(super) fn delivered(reply: Vec<Value>) -> Result<Delivered, ParsingError> {
    let (shard, message, fields, deliveries) = from_redis_value(Value::Array(reply))?;
    Ok(Delivered {
        shard,
        message,
        fields,
        deliveries,
    })
}

/// The reply of `XREADGROUP`: the messages of each stream, or nothing.
pub(super) fn read(reply: Value) -> Result<Vec<Delivered>, ParsingError> {
    type Messages = Vec<(String, Vec<Vec<u8>>)>;
    let streams: Option<Vec<(String, Messages)>> = from_redis_value(reply)?;
    let mut all = Vec::new();
    for (stream, messages) in streams.unwrap_or_default() {
        let Some((_, shard)) = parse_stream(&stream) else {
            continue;
        };
        all.extend(messages.into_iter().map(|(message, fields)| Delivered {
            shard,
            message,
            fields,
            deliveries: 1,
        }));
    }
    Ok(all)
}

/// A member of `meta:deadlines`: the queue, the shard, the message, the account and the job.
pub(super) fn deadline_member(member: &str) -> Option<(QueueName, u16, &str, &str, &str)> {
    let mut parts = member.splitn(4, '|');
    let (queue, shard) = parse_stream(parts.next()?)?;
    Some((queue, shard, parts.next()?, parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_deadlines_name_a_job() {
        assert_eq!(
            deadline_member("input:x:s3|17-0|ann|a|b"),
            Some((QueueName::new("input:x"), 3, "17-0", "ann", "a|b"))
        );
        assert_eq!(
            deadline_member("input:x:s3|17-0||a"),
            Some((QueueName::new("input:x"), 3, "17-0", "", "a"))
        );
        assert_eq!(deadline_member("other"), None);
    }
}
