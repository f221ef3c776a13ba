//! The states of a job in Runpod's words, which both faces use.

use tidegate_core::Status;

/// A status in Runpod's words.
pub(super) fn status_name(status: Status) -> &'static str {
    match status {
        Status::Queued => "IN_QUEUE",
        Status::Starting | Status::Processing => "IN_PROGRESS",
        Status::Succeeded => "COMPLETED",
        Status::Failed => "FAILED",
        Status::Canceled => "CANCELLED",
        // It was not wanted any more before it could begin.
        Status::Aborted => "TIMED_OUT",
    }
}
