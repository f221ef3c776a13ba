//! Who did what to which job, for those who must be able to say so later: log lines with the target
//! `audit`. Where nobody says who they are there is nothing to write.

use crate::Job;

pub(crate) fn created(job: &Job) {
    if !job.account().is_anonymous() {
        tracing::info!(target: "audit", account = %job.account(), job = %job.id(), "created");
    }
}

pub(crate) fn canceled(job: &Job) {
    if !job.account().is_anonymous() {
        tracing::info!(target: "audit", account = %job.account(), job = %job.id(), "canceled");
    }
}
