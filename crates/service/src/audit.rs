//! The audit log: log lines with the target `audit` that name the account that created or canceled
//! a job. Anonymous requests are not logged.

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
