//! Leases that are not in the database yet, in a file of their own.
//!
//! A write to the file takes a microsecond, because nothing waits for the disk: the pages survive a
//! crash of the process, not one of the machine. The next process moves the leases to the database
//! before it reads any job. A short job thus needs no commit of its own for its lease, and still
//! counts as started if it kills the server.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tidegate_core::lease::{Fence, LeaseRequest, Nonce};
use tidegate_core::{Account, JobId};

/// The size of one entry of the file: job number, attempt, nonce, start, checksum, padding. Entries
/// do not cross pages.
const ENTRY: usize = 64;
/// The size of the file at the start, in bytes.
const PREALLOCATED: usize = 4096;
/// The bytes of an entry that the checksum covers.
const CHECKED: usize = 36;

/// A lease that is not in the database yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LeaseMarker {
    pub(super) fence: Fence,
    pub(super) began_at: Timestamp,
}

/// The marker of a job while a request for its lease is decided. A marker is set before the row of the
/// job is read, and removed after its lease is committed: of two requests, one sees the other.
#[derive(Debug, Clone, Copy)]
pub(super) enum MarkerReservation {
    /// The marker is set for this request; what it replaced.
    New(Option<LeaseMarker>),
    /// An earlier request with the same nonce has set it.
    Same(LeaseMarker),
    /// Another request holds the lease.
    HeldByAnother,
}

/// The markers of a store.
pub(super) struct LeaseMarkers {
    file: File,
    inner: Mutex<Inner>,
}

/// The key of a job.
type Key = (Account, JobId);

#[derive(Default)]
struct Inner {
    /// The markers, and the entry of each in the file once it is written.
    markers: HashMap<Key, (LeaseMarker, Option<u64>)>,
    /// Entries of the file that were used before.
    free: Vec<u64>,
    entries: u64,
}

impl LeaseMarkers {
    /// Reads the markers of the previous process, with the numbers of their jobs.
    pub(super) fn read(mut file: &File) -> io::Result<Vec<(i64, LeaseMarker)>> {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes.chunks_exact(ENTRY).filter_map(decode).collect())
    }

    /// No markers; those in the file are erased.
    pub(super) fn new(file: File) -> io::Result<Self> {
        file.set_len(0)?;
        // A page for the first entries, so that jobs start also when the disk is full later.
        file.write_all_at(&[0; PREALLOCATED], 0).ok();
        Ok(Self {
            file,
            inner: Mutex::default(),
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn get(&self, account: &Account, id: &JobId) -> Option<LeaseMarker> {
        let key = (account.clone(), id.clone());
        self.with(|inner| inner.markers.get(&key).map(|(marker, _)| *marker))
    }

    /// Sets the marker of a job in memory, unless another request holds its lease.
    pub(super) fn reserve(&self, request: &LeaseRequest) -> MarkerReservation {
        let marker = LeaseMarker {
            fence: Fence {
                attempt: request.after_attempt + 1,
                nonce: request.nonce,
            },
            began_at: request.began_at,
        };
        self.with(|inner| match inner.markers.get_mut(&key_of(request)) {
            None => {
                inner.markers.insert(key_of(request), (marker, None));
                MarkerReservation::New(None)
            }
            Some((known, _)) if known.fence.nonce == request.nonce => {
                MarkerReservation::Same(*known)
            }
            Some((known, _)) if known.fence.attempt == request.after_attempt => {
                MarkerReservation::New(Some(std::mem::replace(known, marker)))
            }
            Some(_) => MarkerReservation::HeldByAnother,
        })
    }

    /// Undoes a reservation, if the request was refused.
    pub(super) fn undo(&self, request: &LeaseRequest, previous: Option<LeaseMarker>) {
        match previous {
            None => self.remove(&request.account, &request.id, request.nonce),
            Some(previous) => self.with(|inner| {
                if let Some((marker, _)) = inner.markers.get_mut(&key_of(request)) {
                    *marker = previous;
                }
            }),
        }
    }

    /// Writes the marker of a job to the file: then it survives a crash of the process.
    pub(super) fn write(&self, request: &LeaseRequest, number: i64) -> io::Result<()> {
        self.with(|inner| {
            let Some((marker, entry)) = inner.markers.get(&key_of(request)).copied() else {
                return Ok(());
            };
            let is_new = entry.is_none();
            let entry = entry.unwrap_or_else(|| inner.unused_entry());
            self.file
                .write_all_at(&encode(number, marker), entry * ENTRY as u64)?;
            if is_new {
                inner.occupy(entry);
                inner.markers.insert(key_of(request), (marker, Some(entry)));
            }
            Ok(())
        })
    }

    /// Removes the marker of a job whose lease or end is committed, unless another request has replaced
    /// it since.
    pub(super) fn remove(&self, account: &Account, id: &JobId, nonce: Nonce) {
        let key = (account.clone(), id.clone());
        self.with(|inner| {
            let known = inner.markers.get(&key);
            if known.is_none_or(|(marker, _)| marker.fence.nonce != nonce) {
                return;
            }
            let Some((_, Some(entry))) = inner.markers.remove(&key) else {
                return;
            };
            // A marker that stays in the file has no effect: its lease is in the database.
            self.file
                .write_all_at(&[0; ENTRY], entry * ENTRY as u64)
                .ok();
            inner.free.push(entry);
        });
    }
}

fn key_of(request: &LeaseRequest) -> Key {
    (request.account.clone(), request.id.clone())
}

impl Inner {
    fn unused_entry(&self) -> u64 {
        self.free.last().copied().unwrap_or(self.entries)
    }

    /// Marks the entry that `unused_entry` returned as occupied.
    fn occupy(&mut self, entry: u64) {
        if self.free.pop().is_none() {
            self.entries = entry + 1;
        }
    }
}

fn encode(number: i64, marker: LeaseMarker) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[..8].copy_from_slice(&number.to_le_bytes());
    entry[8..12].copy_from_slice(&marker.fence.attempt.to_le_bytes());
    entry[12..28].copy_from_slice(&marker.fence.nonce.0.to_le_bytes());
    entry[28..36].copy_from_slice(&marker.began_at.as_microsecond().to_le_bytes());
    let sum = checksum(&entry[..CHECKED]);
    entry[CHECKED..CHECKED + 4].copy_from_slice(&sum.to_le_bytes());
    entry
}

/// The marker of an entry; `None` for one that is free or incomplete.
fn decode(entry: &[u8]) -> Option<(i64, LeaseMarker)> {
    let number = i64::from_le_bytes(entry[..8].try_into().ok()?);
    let sum = u32::from_le_bytes(entry[CHECKED..CHECKED + 4].try_into().ok()?);
    if number == 0 || sum != checksum(&entry[..CHECKED]) {
        return None;
    }
    let fence = Fence {
        attempt: u32::from_le_bytes(entry[8..12].try_into().ok()?),
        nonce: Nonce(u128::from_le_bytes(entry[12..28].try_into().ok()?)),
    };
    let micros = i64::from_le_bytes(entry[28..36].try_into().ok()?);
    let began_at = Timestamp::from_microsecond(micros).ok()?;
    Some((number, LeaseMarker { fence, began_at }))
}

/// FNV-1a: detects an entry of which a crash of the machine left a part.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| {
        (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}
