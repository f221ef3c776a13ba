//! The statements for leases. Each function runs inside a transaction of its caller.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use tidegate_core::lease::{Fence, LeaseRequest, LeaseResult};

use super::attempts::with_last_attempt;
use super::error::DbError;
use super::lease_markers::{LeaseMarker, LeaseMarkers, MarkerReservation};
use crate::columns;

/// What decides about a request for the lease of a job.
struct LeaseRow {
    number: i64,
    attempt: u32,
    nonce: Option<String>,
    cancel_requested: bool,
    is_ended: bool,
}

/// A lease that is granted, and is not stored yet.
pub(super) struct GrantedMarker {
    /// The number of the job.
    pub(super) number: i64,
    /// The lease of the attempt before this one, if it is not in the database.
    pub(super) previous: Option<LeaseMarker>,
    pub(super) lease: LeaseMarker,
}

/// The row of a job, if the job exists.
fn row(conn: &Connection, request: &LeaseRequest) -> Result<Option<LeaseRow>, DbError> {
    let mut statement = conn.prepare_cached(
        "SELECT number, attempt, lease_nonce, cancel_asked, completed_at IS NOT NULL FROM jobs
         WHERE account = ? AND id = ?",
    )?;
    let values = params![columns::account_text(&request.account), request.id.as_str()];
    let read = |row: &rusqlite::Row<'_>| {
        Ok(LeaseRow {
            number: row.get(0)?,
            attempt: row.get(1)?,
            nonce: row.get(2)?,
            cancel_requested: row.get(3)?,
            is_ended: row.get(4)?,
        })
    };
    Ok(statement.query_row(values, read).optional()?)
}

impl LeaseRow {
    /// Decides about a request whose marker is set.
    fn decide(&self, request: &LeaseRequest, reservation: MarkerReservation) -> LeaseResult {
        let last_attempt = match reservation {
            MarkerReservation::New(Some(previous)) => previous.fence.attempt.max(self.attempt),
            _ => self.attempt,
        };
        if self.is_ended {
            LeaseResult::Ended
        } else if self.cancel_requested {
            LeaseResult::CancelRequested
        } else if let MarkerReservation::Same(marker) = reservation {
            LeaseResult::Granted(marker.fence)
        } else if self.nonce.as_deref() == Some(&*columns::nonce_text(request.nonce)) {
            LeaseResult::Granted(Fence {
                attempt: self.attempt,
                nonce: request.nonce,
            })
        } else if last_attempt == request.after_attempt {
            LeaseResult::Granted(Fence {
                attempt: last_attempt + 1,
                nonce: request.nonce,
            })
        } else {
            LeaseResult::HeldByAnother
        }
    }
}

/// Decides about a request. If it is granted, `keep` gets the number of the job and the lease;
/// otherwise the marker is as before. `keep` also gets the lease of the attempt before it, if that is not in
/// the database.
pub(super) fn grant(
    conn: &Connection,
    markers: &LeaseMarkers,
    request: &LeaseRequest,
    keep: impl FnOnce(GrantedMarker) -> Result<(), DbError>,
) -> Result<LeaseResult, DbError> {
    let reservation = markers.reserve(request);
    let began_at = match reservation {
        MarkerReservation::HeldByAnother => return Ok(LeaseResult::HeldByAnother),
        MarkerReservation::Same(marker) => marker.began_at,
        MarkerReservation::New(_) => request.began_at,
    };
    let decided = row(conn, request).and_then(|row| {
        let Some(row) = row else {
            return Ok(LeaseResult::Unknown);
        };
        let result = row.decide(request, reservation);
        if let LeaseResult::Granted(fence) = result {
            let previous = match reservation {
                MarkerReservation::New(previous) => previous,
                MarkerReservation::Same(_) | MarkerReservation::HeldByAnother => None,
            };
            keep(GrantedMarker {
                number: row.number,
                previous,
                lease: LeaseMarker { fence, began_at },
            })?;
        }
        Ok(result)
    });
    if let MarkerReservation::New(previous) = reservation
        && !matches!(decided, Ok(LeaseResult::Granted(_)))
    {
        markers.undo(request, previous);
    }
    decided
}

/// Stores a lease, unless the job has ended or has a later one.
pub(super) fn store(
    conn: &Connection,
    number: i64,
    marker: LeaseMarker,
    opened_at: Timestamp,
) -> Result<(), rusqlite::Error> {
    let mut statement = conn.prepare_cached(concat!(
        "UPDATE jobs SET status = 'processing', attempt = ?2, lease_nonce = ?3, started_at = ?4, earlier_attempts = ",
        with_last_attempt!("?2", "?5", "?4"),
        " WHERE number = ?1 AND completed_at IS NULL AND attempt < ?2",
    ))?;
    statement.execute(params![
        number,
        marker.fence.attempt,
        columns::nonce_text(marker.fence.nonce),
        columns::micros(marker.began_at),
        columns::micros(opened_at),
    ])?;
    Ok(())
}
