//! Serde representations of domain values in messages between processes, for `#[serde(with = …)]`.

/// JSON text that is sent as it is, not as a string.
pub mod json {
    use bytes::Bytes;
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Error, Serialize, Serializer};
    use serde_json::value::RawValue;

    /// Writes the text.
    pub fn serialize<S: Serializer>(json: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_slice::<&RawValue>(json)
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }

    /// Reads any JSON value as its text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Bytes::from(raw.get().to_owned()))
    }
}

/// JSON text that may be absent. A JSON `null` is a text, and so differs from an absent one: it is sent as
/// a list with one element.
pub mod optional_json {
    use bytes::Bytes;
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::{Serialize, Serializer};

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Text(#[serde(with = "super::json")] Bytes);

    /// Writes the text, if there is one.
    pub fn serialize<S: Serializer>(
        json: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        json.clone().map(|json| [Text(json)]).serialize(serializer)
    }

    /// Reads the text, if there is one.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        let texts = Option::<[Text; 1]>::deserialize(deserializer)?;
        Ok(texts.map(|[Text(json)]| json))
    }
}

/// An account: its name, empty for the anonymous account.
pub mod account {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use crate::Account;

    /// Writes the name.
    pub fn serialize<S: Serializer>(account: &Account, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if account.is_anonymous() {
            ""
        } else {
            account.as_str()
        })
    }

    /// Reads the name.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Account, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "" => Ok(Account::ANONYMOUS),
            name => Account::parse(name).map_err(D::Error::custom),
        }
    }
}

/// A duration in whole milliseconds.
pub mod milliseconds {
    use std::time::Duration;

    use serde::de::{Deserialize, Deserializer};
    use serde::ser::Serializer;

    /// Writes the number of milliseconds.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    /// Reads a number of milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_millis(u64::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde::{Deserialize, Serialize};

    use crate::Account;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Message {
        #[serde(with = "super::json")]
        input: Bytes,
        #[serde(with = "super::optional_json")]
        output: Option<Bytes>,
        #[serde(with = "super::account")]
        account: Account,
    }

    #[test]
    fn values_survive_as_text() {
        for (input, output, account) in [
            ("{\"a\": 1.0}", None, Account::ANONYMOUS),
            ("[]", Some("null"), Account::parse("ann").unwrap()),
            (
                "null",
                Some("{\"b\" : [1e400]}"),
                Account::parse("anonymous").unwrap(),
            ),
        ] {
            let message = Message {
                input: Bytes::from(input),
                output: output.map(Bytes::from),
                account,
            };
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(
                serde_json::from_str::<Message>(&text).unwrap(),
                message,
                "{text}"
            );
        }
    }

    #[test]
    fn a_text_that_is_not_json_is_not_sent() {
        let message = Message {
            input: Bytes::from_static(b"{"),
            output: None,
            account: Account::ANONYMOUS,
        };
        assert!(serde_json::to_string(&message).is_err());
    }
}
