//! The quota of an account: the bytes of its uploads and trained weights. Concurrent uploads count
//! while they are being stored, so they cannot exceed the quota together.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tidegate_core::Account;

use super::{FileEntry, FileStore, FileStoreError, is_unexpired};

/// The bytes of uploads that are being stored, by account.
#[derive(Default)]
pub(super) struct InFlightUploads(Mutex<HashMap<Account, u64>>);

/// Bytes reserved for an upload until it is stored or refused. Dropping it releases them.
pub(super) struct QuotaReservation<'a> {
    in_flight: &'a InFlightUploads,
    account: Account,
    bytes: u64,
}

impl FileStore {
    /// Fails if `bytes` more would exceed the quota of the account.
    pub fn check_quota(&self, account: &Account, bytes: u64) -> Result<(), FileStoreError> {
        self.reserve(account, bytes).map(drop)
    }

    /// Reserves bytes for an upload. Between storing the upload and dropping the reservation it
    /// counts twice, so an account close to its quota may be refused too early, but never too late.
    pub(super) fn reserve(
        &self,
        account: &Account,
        bytes: u64,
    ) -> Result<QuotaReservation<'_>, FileStoreError> {
        let mut in_flight = self
            .in_flight
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(max) = self.limits.max_bytes_per_account {
            let used =
                self.stored_bytes(account) + in_flight.get(account).copied().unwrap_or_default();
            if used.saturating_add(bytes) > max {
                return Err(FileStoreError::Quota { used, max });
            }
        }
        *in_flight.entry(account.clone()).or_default() += bytes;
        Ok(QuotaReservation {
            in_flight: &self.in_flight,
            account: account.clone(),
            bytes,
        })
    }
}

impl FileStore {
    /// The bytes that count towards the quota: the uploads of the account and its trained weights.
    fn stored_bytes(&self, account: &Account) -> u64 {
        let now = Timestamp::now();
        let counts = |entry: &&FileEntry| {
            entry.account == *account && entry.file.job.is_none() && is_unexpired(&entry.file, now)
        };
        self.entries()
            .values()
            .filter(counts)
            .map(|entry| entry.file.size)
            .sum()
    }
}

impl Drop for QuotaReservation<'_> {
    fn drop(&mut self) {
        let mut in_flight = self
            .in_flight
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = in_flight.get_mut(&self.account) {
            *bytes -= self.bytes;
            if *bytes == 0 {
                in_flight.remove(&self.account);
            }
        }
    }
}
