//! Runpod's names of a job's status, for both APIs.

use tidegate_core::Status;

/// Runpod's name of a status.
pub(super) fn status_name(status: Status) -> &'static str {
    match status {
        Status::Queued => "IN_QUEUE",
        Status::Starting | Status::Processing => "IN_PROGRESS",
        Status::Succeeded => "COMPLETED",
        Status::Failed => "FAILED",
        Status::Canceled => "CANCELLED",
        // Its deadline passed before it was started.
        Status::Aborted => "TIMED_OUT",
    }
}
