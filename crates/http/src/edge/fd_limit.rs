//! Limits the file descriptors that connections use. Without a free descriptor no webhook can be
//! sent and no child process can be started.

use std::os::fd::{AsFd, AsRawFd};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit is not raised beyond this: programs that a model starts inherit it, and some iterate
/// over all possible descriptors.
const MAX_LIMIT: u64 = 1 << 20;
/// How many descriptors the default connection limit leaves for other uses.
const RESERVED_DESCRIPTORS: u64 = 256;
/// The lowest default connection limit.
const MIN_CONNECTIONS: u64 = 64;
/// With fewer free descriptors, connections are closed after each request.
const LOW_WATERMARK: u64 = 64;
/// No more connections are accepted when less than this share (1/n) of the descriptors is free.
const RESERVED_SHARE: u64 = 8;

/// Raises the soft limit of this process to its hard limit, at most [`MAX_LIMIT`].
pub fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    let new_limit = limit.maximum.unwrap_or(MAX_LIMIT).min(MAX_LIMIT);
    if limit.current.is_none_or(|current| current >= new_limit) {
        return;
    }
    if let Err(error) = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(new_limit),
            maximum: limit.maximum,
        },
    ) {
        tracing::warn!(%error, new_limit, "failed to raise the limit of open files");
    }
}

/// How many connections may be open at once by default.
pub fn default_max_connections() -> usize {
    let limit = getrlimit(Resource::Nofile)
        .current
        .unwrap_or(MAX_LIMIT)
        .min(MAX_LIMIT);
    let connections = limit
        .saturating_sub(RESERVED_DESCRIPTORS)
        .max(MIN_CONNECTIONS);
    usize::try_from(connections).unwrap_or(usize::MAX)
}

/// How many file descriptors are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FdHeadroom {
    /// Only those reserved for other uses than connections.
    Reserved,
    /// Few.
    Low,
    /// Enough.
    Ample,
}

impl FdHeadroom {
    /// The headroom above the newest descriptor. The system assigns the lowest free number, so all
    /// below it are in use. The limit is read each time: it can be changed from outside while the
    /// server runs.
    pub(super) fn above(newest: &impl AsFd) -> Self {
        let newest = u64::try_from(newest.as_fd().as_raw_fd()).unwrap_or(0);
        getrlimit(Resource::Nofile)
            .current
            .map_or(Self::Ample, |limit| Self::between(newest, limit))
    }

    /// The headroom now. Opens a descriptor briefly to see which number it gets.
    pub(super) fn now(any: &impl AsFd) -> Self {
        rustix::io::fcntl_dupfd_cloexec(any, 0).map_or(Self::Reserved, |probe| Self::above(&probe))
    }

    fn between(newest: u64, limit: u64) -> Self {
        let free = limit.saturating_sub(newest + 1);
        if free < LOW_WATERMARK.min(limit / RESERVED_SHARE) {
            Self::Reserved
        } else if free < LOW_WATERMARK {
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
    fn the_last_descriptors_are_reserved() {
        assert_eq!(FdHeadroom::between(20, 1024), FdHeadroom::Ample);
        assert_eq!(FdHeadroom::between(959, 1024), FdHeadroom::Ample);
        assert_eq!(FdHeadroom::between(960, 1024), FdHeadroom::Reserved);
        assert_eq!(FdHeadroom::between(40, 64), FdHeadroom::Low);
        assert_eq!(FdHeadroom::between(55, 64), FdHeadroom::Low);
        assert_eq!(FdHeadroom::between(56, 64), FdHeadroom::Reserved);
        assert_eq!(FdHeadroom::between(80, 64), FdHeadroom::Reserved);
    }
}
