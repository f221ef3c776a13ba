//! Kills the processes that user code has started, before the child ends.
//!
//! They may have left the process group and lost their parents, so they are found by the tag that they
//! inherit from the child. The reaper of the server does the same after the child's death. It is needed if
//! the child crashes; the child is needed if the server was killed. A child cannot tell: its slots may close
//! shortly before the control channel does.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use tidegate_ipc::ProcessTag;

use crate::sys;

/// The tag, and the process id of the child.
static TAG: OnceLock<(ProcessTag, u32)> = OnceLock::new();

/// How often the search is repeated: a process that is found may have started another one meanwhile.
const MAX_PASSES: usize = 1000;
const PAUSE: Duration = Duration::from_millis(2);

/// Reads the tag from the environment and puts it into the limits of this process. Must be called before
/// user code runs.
pub(crate) fn set_tag() {
    let Ok(text) = std::env::var(ProcessTag::VARIABLE) else {
        return;
    };
    let tag = ProcessTag::new(text);
    // It fails if the limit was lowered from outside; then only the environment has the tag.
    sys::limit_file_locks(tag.lock_limit()).ok();
    TAG.set((tag, std::process::id())).ok();
}

/// Kills all living processes with the tag, except this one. Does nothing in a forked copy of the child,
/// which has the same tag.
pub(crate) fn kill_all() {
    let Some((tag, child)) = TAG.get() else {
        return;
    };
    if *child != std::process::id() {
        return;
    }
    for _ in 0..MAX_PASSES {
        let found = tagged_processes(tag);
        if found.is_empty() {
            return;
        }
        found.into_iter().for_each(sys::kill);
        thread::sleep(PAUSE);
    }
}

fn tagged_processes(tag: &ProcessTag) -> Vec<i32> {
    let this = std::process::id().cast_signed();
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != this && is_tagged(tag, *pid))
        .collect()
}

fn is_tagged(tag: &ProcessTag, pid: i32) -> bool {
    let read = |name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    tag.is_on(&read("environ"), &read("limits")) && !is_zombie(&read("stat"))
}

/// A zombie is dead already, but its limits can still be read.
fn is_zombie(stat: &[u8]) -> bool {
    // The command name before the state is in parentheses and may contain anything.
    let after_name = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    matches!(after_name.get(1), None | Some(b'Z' | b'X'))
}
