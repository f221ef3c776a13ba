//! The table of tokens: maps each token to an account. It contains hashes, not the tokens.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ring::digest;
use tidegate_core::Account;

use super::{Identity, Role, TokenCheck};

/// The SHA-256 of a token.
///
/// A hash map finds tokens by it. The time of a lookup reveals something about the hash only, and
/// an attacker cannot choose a token by its hash, so no comparison has to take constant time. A
/// fast hash is enough because tokens are random and long; passwords would need a slow one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenDigest([u8; 32]);

/// The text is not a SHA-256 in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a token hash must have 64 hexadecimal digits")]
pub struct InvalidTokenDigest;

/// The table contains the token already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is listed twice")]
pub struct DuplicateToken;

impl TokenDigest {
    /// The hash of a token.
    pub fn of(token: &[u8]) -> Self {
        let hash = digest::digest(&digest::SHA256, token);
        Self(hash.as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }

    /// Parses the hexadecimal form that `Display` writes.
    pub fn parse(hex: &str) -> Result<Self, InvalidTokenDigest> {
        let digits: Option<Vec<u8>> = hex
            .chars()
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect();
        let digits = digits
            .filter(|digits| digits.len() == 64)
            .ok_or(InvalidTokenDigest)?;
        Ok(Self(std::array::from_fn(|index| {
            digits[2 * index] << 4 | digits[2 * index + 1]
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

/// The identity that belongs to each token.
#[derive(Debug, Clone, Default)]
pub struct TokenTable(HashMap<TokenDigest, Identity>);

impl TokenTable {
    /// Adds a token.
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

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of accounts.
    pub fn accounts(&self) -> usize {
        self.0
            .values()
            .map(|identity| &identity.account)
            .collect::<HashSet<_>>()
            .len()
    }

    /// Makes all tokens administrators if there is one account only: there is no other account to
    /// protect.
    fn promote_single_account(mut self) -> Self {
        if self.accounts() == 1 {
            self.0
                .values_mut()
                .for_each(|identity| identity.role = Role::Admin);
        }
        self
    }
}

/// The current token table, which can be replaced. Clones share it.
#[derive(Debug, Clone)]
pub struct Tokens(Arc<ArcSwap<TokenTable>>);

impl Tokens {
    /// Accepts the tokens of this table.
    pub fn new(table: TokenTable) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(
            table.promote_single_account(),
        )))
    }

    /// Replaces the table. It applies from the next request on; running jobs continue.
    pub fn reload(&self, table: TokenTable) {
        self.0.store(Arc::new(table.promote_single_account()));
    }

    pub(super) fn find(&self, token: &[u8]) -> Option<Identity> {
        self.identity_of(&TokenDigest::of(token))
    }

    /// Checks later whether this token still belongs to the same client. Keeps only its hash.
    pub(super) fn check_for(&self, token: &[u8], identity: &Identity) -> TokenCheck {
        let (tokens, digest) = (self.clone(), TokenDigest::of(token));
        let identity = identity.clone();
        TokenCheck::new(move || tokens.identity_of(&digest).as_ref() == Some(&identity))
    }

    fn identity_of(&self, digest: &TokenDigest) -> Option<Identity> {
        self.0.load().0.get(digest).cloned()
    }
}
