//! The table of tokens: whose each one is. It holds no token, only their hashes.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ring::digest;
use tidegate_core::Account;

use super::{Identity, Role};

/// The SHA-256 of a token.
///
/// Tokens are found by it in a hash map. How long that takes tells something about a hash, and nobody
/// can choose a token by the bytes of its hash, so nothing here has to take constant time. A fast hash
/// is enough because tokens are random and long; chosen words would need a slow one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

/// A text is not a SHA-256 in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash has 64 hexadecimal digits")]
pub struct InvalidTokenDigest;

/// The same token twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is listed twice")]
pub struct DuplicateToken;

impl TokenDigest {
    /// The hash of a token.
    pub fn of(token: &[u8]) -> Self {
        let hash = digest::digest(&digest::SHA256, token);
        Self(hash.as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }

    /// Reads what [`TokenDigest`] prints.
    pub fn parse(hex: &str) -> Result<Self, InvalidTokenDigest> {
        let digits: Option<Vec<u8>> = hex
            .chars()
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect();
        let digits = digits
            .filter(|digits| digits.len() == 64)
            .ok_or(InvalidTokenDigest)?;
        Ok(Self(std::array::from_fn(|place| {
            digits[2 * place] << 4 | digits[2 * place + 1]
        })))
    }
}

impl fmt::Display for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// Whose each token is.
#[derive(Debug, Clone, Default)]
pub struct TokenTable(HashMap<TokenDigest, Identity>);

impl TokenTable {
    /// One token more.
    pub fn add(
        &mut self,
        digest: TokenDigest,
        account: Account,
        role: Role,
    ) -> Result<(), DuplicateToken> {
        match self.0.insert(digest, Identity { account, role }) {
            None => Ok(()),
            Some(_) => Err(DuplicateToken),
        }
    }

    /// How many tokens there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nobody has a token.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many accounts there are.
    pub fn accounts(&self) -> usize {
        self.0
            .values()
            .map(|identity| &identity.account)
            .collect::<HashSet<_>>()
            .len()
    }

    /// Who is alone with the server has nobody to be protected from: its tokens are all administrators'.
    fn with_rights(mut self) -> Self {
        if self.accounts() == 1 {
            self.0
                .values_mut()
                .for_each(|identity| identity.role = Role::Admin);
        }
        self
    }
}

/// The tokens that open the door now. Cloning gives another handle on the same ones.
#[derive(Debug, Clone)]
pub struct Tokens(Arc<ArcSwap<TokenTable>>);

impl Tokens {
    /// The door opens for these.
    pub fn new(table: TokenTable) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(table.with_rights())))
    }

    /// From the next request on the door opens for these and no others. Jobs that run go on.
    pub fn reload(&self, table: TokenTable) {
        self.0.store(Arc::new(table.with_rights()));
    }

    pub(super) fn find(&self, token: &[u8]) -> Option<Identity> {
        self.0.load().0.get(&TokenDigest::of(token)).cloned()
    }
}
