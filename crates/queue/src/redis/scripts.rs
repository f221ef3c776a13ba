//! The scripts that run on the server. Each is one step that no other command can interrupt, and one round
//! trip.

use redis::Script;

macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("scripts/common.lua"),
            include_str!(concat!("scripts/", $name, ".lua"))
        ))
    };
}

/// The scripts with their hashes.
pub(super) struct Scripts {
    pub(super) push: Script,
    pub(super) take: Script,
    pub(super) recover: Script,
    pub(super) renew: Script,
    pub(super) ack: Script,
    pub(super) put_back: Script,
    pub(super) put_back_job: Script,
    pub(super) remove: Script,
    pub(super) overdue: Script,
    pub(super) settle: Script,
    pub(super) collect: Script,
    pub(super) shrink: Script,
    pub(super) lost: Script,
    pub(super) old: Script,
    pub(super) remove_old: Script,
    pub(super) depth: Script,
    pub(super) usage: Script,
    pub(super) bury: Script,
    pub(super) stale_consumers: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            push: script!("push"),
            take: script!("take"),
            recover: script!("recover"),
            renew: script!("renew"),
            ack: script!("ack"),
            put_back: script!("put_back"),
            put_back_job: script!("put_back_job"),
            remove: script!("remove"),
            overdue: script!("overdue"),
            settle: script!("settle"),
            collect: script!("collect"),
            shrink: script!("shrink"),
            lost: script!("lost"),
            old: script!("old"),
            remove_old: script!("remove_old"),
            depth: script!("depth"),
            usage: script!("usage"),
            bury: script!("bury"),
            stale_consumers: script!("stale_consumers"),
        }
    }
}
