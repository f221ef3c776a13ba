//! How much an account may leave here. What is on its way in counts, so that nobody gets more by sending much at
//! once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tidegate_core::Account;

use super::{FileEntry, FileStore, FileStoreError, is_unexpired};

/// Bytes of files that are being filed, by account.
#[derive(Default)]
pub(super) struct InFlightUploads(Mutex<HashMap<Account, u64>>);

/// Room for a file, until it is filed or given up.
pub(super) struct QuotaReservation<'a> {
    in_flight: &'a InFlightUploads,
    account: Account,
    bytes: u64,
}

impl FileStore {
    /// Refuses an account that has no room for so many bytes more.
    pub fn check_quota(&self, account: &Account, bytes: u64) -> Result<(), FileStoreError> {
        self.reserve(account, bytes).map(drop)
    }

    /// Takes the room for a file. FileRetention it is given back a file that was filed meanwhile counts twice: who is that
    /// close to the bound may be refused a moment early, and never late.
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
    /// What an account has here that goes only when it says so: what it has left, and the weights that it has trained.
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
