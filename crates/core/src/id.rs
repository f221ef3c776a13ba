//! Job ids: those that clients choose, and those that the server generates.
//!
//! An id appears in responses, URLs and logs. It is never part of a file name.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

/// The maximum length of an id that a client chooses, in bytes.
pub const MAX_LEN: usize = 128;

/// The id of a job, unique among the jobs of its account that the server still knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct JobId(Arc<str>);

/// Why a text is not a valid job id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidJobId {
    /// The id is empty.
    #[error("the id is empty; omit it and the server generates one")]
    Empty,
    /// Longer than [`MAX_LEN`].
    #[error("the id has {0} bytes; use at most {MAX_LEN}")]
    TooLong(usize),
    /// A character that breaks URLs, terminals or logs.
    #[error("the id contains {0:?}; use printable text without `/` and `\\`")]
    BadCharacter(char),
    /// `.` or `..`.
    #[error("the id is `.` or `..`; choose another")]
    Dots,
}

impl JobId {
    /// Parses an id that a client chose: 1 to 128 bytes of printable text without slashes.
    pub fn parse(text: &str) -> Result<Self, InvalidJobId> {
        match text {
            "" => return Err(InvalidJobId::Empty),
            "." | ".." => return Err(InvalidJobId::Dots),
            _ if text.len() > MAX_LEN => return Err(InvalidJobId::TooLong(text.len())),
            _ => {}
        }
        match text.chars().find(|c| !allowed(*c)) {
            Some(bad) => Err(InvalidJobId::BadCharacter(bad)),
            None => Ok(Self(text.into())),
        }
    }

    /// Generates an id of 26 letters and digits from 128 random bits.
    pub fn from_random(bits: u128) -> Self {
        const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let mut text = [0u8; 26];
        for (index, digit) in text.iter_mut().rev().enumerate() {
            *digit = ALPHABET[(bits >> (5 * index)) as usize & 31];
        }
        Self(
            std::str::from_utf8(&text)
                .expect("the alphabet is ASCII")
                .into(),
        )
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Rejects invisible characters and those that change the direction of text: with them, one id
/// could look like another.
fn allowed(c: char) -> bool {
    let invisible = matches!(c,
        '\u{00AD}' | '\u{061C}' | '\u{180E}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF0}'..='\u{FFFF}' | '\u{E0000}'..='\u{E0FFF}');
    !c.is_control() && !invisible && c != '/' && c != '\\'
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for JobId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_valid_and_keep_every_bit() {
        let low = JobId::from_random(1);
        let high = JobId::from_random(1 << 127);
        assert_eq!(low.as_str(), "00000000000000000000000001");
        assert_eq!(high.as_str(), "40000000000000000000000000");
        assert_eq!(JobId::parse(low.as_str()), Ok(low));
    }

    #[test]
    fn ids_of_clients_are_short_and_printable() {
        for good in ["a", "my job", "é", "a.b", "...", &"x".repeat(128)] {
            assert!(JobId::parse(good).is_ok(), "{good:?}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a\\b",
            "a\nb",
            "a\0",
            "\u{202E}x",
            "x\u{E0061}",
            "x\u{180E}",
            &"x".repeat(129),
            &"é".repeat(65),
        ] {
            assert!(JobId::parse(bad).is_err(), "{bad:?}");
        }
    }
}
