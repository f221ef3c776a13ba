//! The accounts of the router: which token belongs to which account.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::header::AUTHORIZATION;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use tidegate_core::Account;
use tidegate_router::fleet::{AccountConfig, Fleet};

use super::error::GatewayError;
use crate::access::{Identity, Peer, Role, TokenDigest};

/// The header with the token of OpenAI-style clients that cannot set `Authorization`.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Finds the account of a token. It follows the configuration.
#[derive(Default)]
pub(super) struct AccountDirectory(ArcSwap<AccountTable>);

#[derive(Default)]
struct AccountTable {
    /// The configuration that the table was made from.
    fleet: Option<Arc<Fleet>>,
    accounts: HashMap<TokenDigest, Identity>,
}

impl AccountDirectory {
    /// The client of a request.
    pub(super) fn identify(
        &self,
        fleet: &Arc<Fleet>,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Identity, GatewayError> {
        if fleet.accounts.is_empty() {
            return Ok(Identity {
                account: Account::ANONYMOUS,
                role: match extensions.get::<Peer>() {
                    Some(peer) if peer.is_local() => Role::Admin,
                    Some(_) | None => Role::User,
                },
            });
        }
        let token = token_of(headers).ok_or(GatewayError::NoToken)?;
        let table = self.table(fleet);
        let found = table.accounts.get(&TokenDigest::of(token));
        found.cloned().ok_or(GatewayError::UnknownToken)
    }

    fn table(&self, fleet: &Arc<Fleet>) -> arc_swap::Guard<Arc<AccountTable>> {
        let table = self.0.load();
        let is_current = |of: &Arc<Fleet>| Arc::ptr_eq(of, fleet);
        if table.fleet.as_ref().is_some_and(is_current) {
            return table;
        }
        self.0.store(Arc::new(AccountTable::of(fleet)));
        self.0.load()
    }
}

impl AccountTable {
    fn of(fleet: &Arc<Fleet>) -> Self {
        let entry = |account: &AccountConfig| {
            let digest = TokenDigest::parse(&account.token_hash).ok()?;
            let identity = Identity {
                account: account.account.clone(),
                role: match account.admin {
                    true => Role::Admin,
                    false => Role::User,
                },
            };
            Some((digest, identity))
        };
        Self {
            accounts: fleet.accounts.iter().filter_map(entry).collect(),
            fleet: Some(Arc::clone(fleet)),
        }
    }
}

/// Checks that the account of a client is the one that the path names. Without accounts every name is
/// accepted.
pub(super) fn check_account(
    fleet: &Fleet,
    account: &Account,
    named: Option<&str>,
) -> Result<(), GatewayError> {
    match named {
        Some(named) if !fleet.accounts.is_empty() && account.as_str() != named => {
            Err(GatewayError::OtherAccount(named.to_owned()))
        }
        Some(_) | None => Ok(()),
    }
}

fn token_of(headers: &HeaderMap) -> Option<&[u8]> {
    let Some(value) = headers.get(AUTHORIZATION) else {
        return headers.get(API_KEY).map(HeaderValue::as_bytes);
    };
    let value = value.as_bytes();
    let space = value.iter().position(|byte| *byte == b' ')?;
    let (scheme, token) = (&value[..space], value[space..].trim_ascii());
    let is_known = scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token");
    (is_known && !token.is_empty()).then_some(token)
}
