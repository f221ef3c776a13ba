//! Accounts: whose job is it.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The longest name of an account, in bytes.
pub const MAX_LEN: usize = 64;

/// Whose job is it. Jobs of different accounts know nothing of each other, not even their ids.
///
/// Cheap to clone: it is cloned for every job.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account(Option<Arc<str>>);

/// Why a text cannot be the name of an account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAccount {
    /// Nothing there.
    #[error("the name of the account is empty")]
    Empty,
    /// Longer than [`MAX_LEN`].
    #[error("the name of the account has {0} bytes, at most {MAX_LEN} are allowed")]
    TooLong(usize),
    /// Something that could be mistaken for the format around it, in files, logs and lists.
    #[error("the name of the account contains {0:?}; use letters, digits, `_`, `.` and `-`")]
    BadCharacter(char),
}

impl Account {
    /// Everybody, where nobody has to say who they are. No name is equal to it, `anonymous` neither.
    pub const ANONYMOUS: Self = Self(None);

    /// Those who wait in a line together. Nobody can be called so.
    pub fn shared() -> Self {
        Self(Some("*".into()))
    }

    /// Takes a name: 1 to 64 letters, digits, `_`, `.` and `-`.
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

    /// Whether it is nobody's in particular.
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
    fn names_are_plain_words() {
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
    fn nobody_can_be_called_what_everybody_is() {
        assert_ne!(Account::parse("anonymous"), Ok(Account::ANONYMOUS));
        assert!(Account::parse(Account::shared().as_str()).is_err());
    }
}
