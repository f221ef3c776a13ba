//! Whether the process ids of the driver are those that this process knows.
//!
//! The driver names processes by their ids on the host. In a container those are the
//! ids of other processes or of none, so nothing may be concluded from equal numbers. Some drivers translate the ids; that
//! cannot be asked, so the user has to say so.

use std::os::unix::fs::MetadataExt;

/// The inode of the process namespace of the host (`PROC_PID_INIT_INO` of Linux).
const HOST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Whether the process ids of the driver are compared with those of children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PidTrust {
    /// Only if this process is in the process namespace of the host.
    #[default]
    Auto,
    /// Always.
    Trust,
    /// Never.
    Ignore,
}

impl PidTrust {
    pub(crate) fn pids_match(self) -> bool {
        match self {
            Self::Auto => is_host_namespace(),
            Self::Trust => true,
            Self::Ignore => false,
        }
    }
}

fn is_host_namespace() -> bool {
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == HOST_NAMESPACE)
}
