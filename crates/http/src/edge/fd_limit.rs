//! File descriptors: connections may not take the last ones. A webhook without a socket is a webhook
//! that does not arrive, and a child without a pipe is not replaced.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit is not raised beyond this: programs that a model starts inherit it, and some walk
/// through all descriptors that they might have.
const ENOUGH: u64 = 1 << 20;
/// So many of all descriptors are not for connections, if nothing else is said.
const NOT_FOR_CONNECTIONS: u64 = 256;
/// Fewer connections than this are not worth a server.
const FEWEST_CONNECTIONS: u64 = 64;
/// When fewer than so many are left, connections are not kept open between requests,
const TIGHT: u64 = 64;
/// and when fewer than this share of all are left, no more are accepted.
const LAST_SHARE: u64 = 8;

/// Raises the limit of this process to what it is allowed to have.
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_none_or(|current| current >= most) {
        return;
    }
    if let Err(error) = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(most),
            maximum: limit.maximum,
        },
    ) {
        tracing::warn!(%error, most, "cannot raise the limit of open files");
    }
}

/// How many connections there may be at once, if nothing else is said.
pub fn default_max_connections() -> usize {
    let limit = getrlimit(Resource::Nofile)
        .current
        .unwrap_or(ENOUGH)
        .min(ENOUGH);
    let connections = limit
        .saturating_sub(NOT_FOR_CONNECTIONS)
        .max(FEWEST_CONNECTIONS);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// How much room is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FdHeadroom {
    /// Only what others need.
    Reserved,
    /// Little.
    Low,
    /// Enough.
    Ample,
}

impl FdHeadroom {
    /// The room above this descriptor, which is the newest one. The system gives the lowest free
    /// number, so all below it are in use. The limit is asked for each time: it can be changed from
    /// outside while we run.
    pub(super) fn above(newest: &impl AsRawFd) -> Self {
        let newest = u64::try_from(newest.as_raw_fd()).unwrap_or(0);
        getrlimit(Resource::Nofile)
            .current
            .map_or(Self::Ample, |limit| Self::between(newest, limit))
    }

    /// The room now. Takes a descriptor for a moment to see which one it is given.
    pub(super) fn now(any: &impl AsFd) -> Self {
        rustix::io::fcntl_dupfd_cloexec(any, 0).map_or(Self::Reserved, |probe| Self::above(&probe))
    }

    fn between(newest: u64, limit: u64) -> Self {
        let left = limit.saturating_sub(newest + 1);
        if left < TIGHT.min(limit / LAST_SHARE) {
            Self::Reserved
        } else if left < TIGHT {
            Self::Low
        } else {
            Self::Ample
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_descriptors_are_kept() {
        assert_eq!(FdHeadroom::between(20, 1024), FdHeadroom::Ample);
        assert_eq!(FdHeadroom::between(959, 1024), FdHeadroom::Ample);
        assert_eq!(FdHeadroom::between(960, 1024), FdHeadroom::Reserved);
        assert_eq!(FdHeadroom::between(40, 64), FdHeadroom::Low);
        assert_eq!(FdHeadroom::between(55, 64), FdHeadroom::Low);
        assert_eq!(FdHeadroom::between(56, 64), FdHeadroom::Reserved);
        assert_eq!(FdHeadroom::between(80, 64), FdHeadroom::Reserved);
    }
}
