//! The messages of the streams.

use std::sync::Arc;

use jiff::Timestamp;
use tidegate_core::queue::{EntryDetails, Priority, QueueEntry};
use tidegate_core::record::{DeploymentRef, Target};
use tidegate_core::{Account, JobId, JobKind};

use super::keys::account_name;

/// The version of the messages. A reader accepts messages of later versions, which only add fields.
const VERSION: &str = "1";
/// The most bytes of a message, all fields together.
pub(super) const MAX_BYTES: usize = 64 * 1024;

/// Why a message names no job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidMessage {
    #[error("the message has {0} bytes, more than {MAX_BYTES}")]
    TooLarge(usize),
    #[error("the message has no field `{0}`")]
    Missing(&'static str),
    #[error("the field `{name}` of the message is `{value}`: {reason}")]
    Invalid {
        name: &'static str,
        value: String,
        reason: String,
    },
}

/// The fields of the message of a job, names and values in turn.
pub(super) fn encode(entry: &QueueEntry) -> Vec<String> {
    let mut fields: Vec<(&str, String)> = vec![
        ("v", VERSION.to_owned()),
        ("account", account_name(&entry.account).to_owned()),
        ("id", entry.id.to_string()),
        ("priority", priority_name(entry.priority).to_owned()),
    ];
    if let Some(deadline) = entry.deadline {
        fields.push(("deadline", deadline.as_millisecond().to_string()));
    }
    if let Some(details) = &entry.details {
        let EntryDetails {
            kind,
            target,
            stream_publish_url,
        } = &**details;
        fields.push(("kind", kind_name(*kind).to_owned()));
        fields.push(("model", target.model.clone()));
        fields.push(("version", target.version.clone()));
        let deployment = target.deployment.as_ref();
        fields.extend(deployment.map(|named| ("deployment", named.to_string())));
        let url = stream_publish_url.clone();
        fields.extend(url.map(|url| ("stream_publish_url", url)));
    }
    let names_and_values = |(name, value): (&str, String)| [name.to_owned(), value];
    fields.into_iter().flat_map(names_and_values).collect()
}

/// The entry of a message.
pub(super) fn decode(fields: &[Vec<u8>]) -> Result<QueueEntry, InvalidMessage> {
    let size = fields.iter().map(Vec::len).sum();
    if size > MAX_BYTES {
        return Err(InvalidMessage::TooLarge(size));
    }
    let fields = Fields(fields);
    let account = match fields.required("account")? {
        "" => Account::ANONYMOUS,
        name => Account::parse(name).map_err(|error| invalid("account", name, &error))?,
    };
    let id = fields.required("id")?;
    let deadline = match fields.text("deadline")? {
        Some(text) => Some(deadline(text)?),
        None => None,
    };
    Ok(QueueEntry {
        account,
        id: JobId::parse(id).map_err(|error| invalid("id", id, &error))?,
        priority: match fields.text("priority")? {
            Some("low") => Priority::Low,
            Some(_) | None => Priority::Normal,
        },
        deadline,
        details: details(&fields)?.map(Arc::new),
    })
}

fn details(fields: &Fields<'_>) -> Result<Option<EntryDetails>, InvalidMessage> {
    let (Some(kind), Some(model), Some(version)) = (
        fields.text("kind")?,
        fields.text("model")?,
        fields.text("version")?,
    ) else {
        return Ok(None);
    };
    let kind = match kind {
        "prediction" => JobKind::Prediction,
        "training" => JobKind::Training,
        other => return Err(invalid("kind", other, &"it is not a kind of job")),
    };
    let deployment = fields.text("deployment")?;
    Ok(Some(EntryDetails {
        kind,
        target: Arc::new(Target {
            model: model.to_owned(),
            version: version.to_owned(),
            deployment: deployment.map(|named| DeploymentRef::from(named.to_owned())),
        }),
        stream_publish_url: fields.text("stream_publish_url")?.map(str::to_owned),
    }))
}

/// Parses the name of an account as it is in keys.
pub(super) fn parse_account(name: &str) -> Option<Account> {
    match name {
        "" => Some(Account::ANONYMOUS),
        name => Account::parse(name).ok(),
    }
}

fn deadline(text: &str) -> Result<Timestamp, InvalidMessage> {
    let number: i64 = text
        .parse()
        .map_err(|error| invalid("deadline", text, &error))?;
    Timestamp::from_millisecond(number).map_err(|error| invalid("deadline", text, &error))
}

fn kind_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::Prediction => "prediction",
        JobKind::Training => "training",
    }
}

fn priority_name(priority: Priority) -> &'static str {
    match priority {
        Priority::Normal => "normal",
        Priority::Low => "low",
    }
}

fn invalid(name: &'static str, value: &str, reason: &dyn std::fmt::Display) -> InvalidMessage {
    InvalidMessage::Invalid {
        name,
        value: value.chars().take(100).collect(),
        reason: reason.to_string(),
    }
}

/// The fields of a message, names and values in turn.
struct Fields<'a>(&'a [Vec<u8>]);

impl Fields<'_> {
    fn text(&self, name: &'static str) -> Result<Option<&str>, InvalidMessage> {
        let mut pairs = self.0.chunks_exact(2);
        let Some(pair) = pairs.find(|pair| pair[0] == name.as_bytes()) else {
            return Ok(None);
        };
        let shown = || String::from_utf8_lossy(&pair[1]).into_owned();
        let text = std::str::from_utf8(&pair[1]);
        text.map(Some)
            .map_err(|error| invalid(name, &shown(), &error))
    }

    fn required(&self, name: &'static str) -> Result<&str, InvalidMessage> {
        self.text(name)?.ok_or(InvalidMessage::Missing(name))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn bytes(fields: &[String]) -> Vec<Vec<u8>> {
        fields
            .iter()
            .map(|field| field.clone().into_bytes())
            .collect()
    }

    fn entry() -> QueueEntry {
        let deadline = Timestamp::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        QueueEntry {
            account: Account::parse("ann").expect("a name"),
            id: JobId::parse("a|b ü").expect("an id"),
            priority: Priority::Low,
            deadline: Some(deadline),
            details: Some(Arc::new(EntryDetails {
                kind: JobKind::Training,
                target: Arc::new(Target {
                    model: "ann/hello".to_owned(),
                    version: "ab".repeat(32),
                    deployment: Some(DeploymentRef::from("ann/d#2".to_owned())),
                }),
                stream_publish_url: Some("https://api/streams/1".to_owned()),
            })),
        }
    }

    #[test]
    fn entries_survive_as_messages() {
        let anonymous = QueueEntry {
            account: Account::ANONYMOUS,
            priority: Priority::Normal,
            deadline: None,
            details: None,
            ..entry()
        };
        for entry in [entry(), anonymous] {
            assert_eq!(decode(&bytes(&encode(&entry))), Ok(entry));
        }
    }

    #[test]
    fn fields_of_later_versions_are_ignored() {
        let mut fields = encode(&entry());
        fields[1] = "2".to_owned();
        fields.extend(["shape".to_owned(), "round".to_owned()]);
        assert_eq!(decode(&bytes(&fields)), Ok(entry()));
    }

    #[test]
    fn a_message_that_names_no_job_says_why() {
        let cases: [(&[&[u8]], &str); 6] = [
            (&[b"id", b"a"], "no field `account`"),
            (&[b"account", b"ann"], "no field `id`"),
            (&[b"account", b"a/b", b"id", b"a"], "`account`"),
            (&[b"account", b"ann", b"id", b"../x"], "`id`"),
            (&[b"account", b"ann", b"id", b"\xff"], "`id`"),
            (
                &[b"account", b"ann", b"id", b"a", b"deadline", b"soon"],
                "`deadline`",
            ),
        ];
        for (fields, expected) in cases {
            let fields: Vec<Vec<u8>> = fields.iter().map(|field| field.to_vec()).collect();
            let error = decode(&fields).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let large = [b"data".to_vec(), vec![b'x'; MAX_BYTES]];
        assert_eq!(decode(&large), Err(InvalidMessage::TooLarge(MAX_BYTES + 4)));
    }
}
