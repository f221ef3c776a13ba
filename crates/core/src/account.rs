//! Accounts: the owners of jobs.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The maximum length of an account name, in bytes.
pub const MAX_LEN: usize = 64;

/// The account that owns a job. Accounts are isolated: the jobs of two accounts can even have the
/// same id.
///
/// Cheap to clone: it is cloned for every job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account(Option<Arc<str>>);

/// Why a text is not a valid account name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAccount {
    /// The name is empty.
    #[error("the account name is empty; use 1 to {MAX_LEN} letters, digits, `_`, `.` and `-`")]
    Empty,
    /// Longer than [`MAX_LEN`].
    #[error("the account name has {0} bytes; use at most {MAX_LEN}")]
    TooLong(usize),
    /// A character that could be mistaken for a delimiter in files, logs and lists.
    #[error("the account name contains {0:?}; use letters, digits, `_`, `.` and `-`")]
    BadCharacter(char),
}

impl Account {
    /// The account of all clients on a server without authentication. No named account equals it,
    /// not even one with the name `anonymous`.
    pub const ANONYMOUS: Self = Self(None);

    /// The account under which all jobs of a durable queue wait for an executor together. No client
    /// can have its name.
    pub fn shared() -> Self {
        Self(Some("*".into()))
    }

    /// Parses a name: 1 to 64 letters, digits, `_`, `.` and `-`.
    pub fn parse(name: &str) -> Result<Self, InvalidAccount> {
        match name
            .chars()
            .find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.' | '-'))
        {
            _ if name.is_empty() => Err(InvalidAccount::Empty),
            _ if name.len() > MAX_LEN => Err(InvalidAccount::TooLong(name.len())),
            Some(bad) => Err(InvalidAccount::BadCharacter(bad)),
            None => Ok(Self(Some(name.into()))),
        }
    }

    /// Whether this is the anonymous account.
    pub fn is_anonymous(&self) -> bool {
        self.0.is_none()
    }

    /// The name, for logs.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or("anonymous")
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Account {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_letters_digits_and_some_punctuation() {
        for good in ["a", "team-1", "A.b_c", "anonymous", &"x".repeat(64)] {
            assert_eq!(
                Account::parse(good).map(|account| account.to_string()),
                Ok(good.to_owned())
            );
        }
        for bad in [
            "",
            " ",
            "a b",
            "a:b",
            "a,b",
            "a#",
            "é",
            "a\n",
            "../x",
            &"x".repeat(65),
        ] {
            assert!(Account::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn reserved_accounts_differ_from_every_parsed_name() {
        assert_ne!(Account::parse("anonymous"), Ok(Account::ANONYMOUS));
        assert!(Account::parse(Account::shared().as_str()).is_err());
    }
}
