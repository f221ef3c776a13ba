//! Free disk space for files.

use std::path::Path;

/// Bytes that stay free for other writers; at most a sixteenth of the file system.
const RESERVE: u64 = 16 * 1024 * 1024;

/// The bytes that files may still take in the file system of `folder`; `None` if the system does
/// not report it.
pub fn free_space(folder: &Path) -> Option<u64> {
    let stats = rustix::fs::statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(stats.f_frsize);
    Some(available(bytes(stats.f_bavail), bytes(stats.f_blocks)))
}

fn available(free: u64, total: u64) -> u64 {
    free.saturating_sub(RESERVE.min(total / 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_stays_free() {
        const MIB: u64 = 1024 * 1024;
        assert_eq!(available(100 * MIB, 1000 * MIB), 84 * MIB);
        assert_eq!(available(10 * MIB, 1000 * MIB), 0);
        assert_eq!(available(10 * MIB, 16 * MIB), 9 * MIB);
        assert!(free_space(&std::env::temp_dir()).is_some());
        assert_eq!(free_space(Path::new("/does/not/exist")), None);
    }
}
