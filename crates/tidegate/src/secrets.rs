//! Hides the server's secrets from the model's code.
//!
//! A process can read the initial environment of another process of the same user. A server with
//! secrets in its environment therefore executes itself again without them, with the same process id,
//! and passes them in an anonymous memory file.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::MemfdFlags;

/// The variable of `--postgres`, whose URL may contain a password.
pub(crate) const POSTGRES: &str = "TIDEGATE_POSTGRES";
/// The variables that hold secrets.
pub(crate) const NAMES: [&str; 7] = [
    "WEBHOOK_AUTH_TOKEN",
    "TIDEGATE_API_TOKENS",
    "TIDEGATE_API_TOKEN",
    "TIDEGATE_WEBHOOK_SECRET",
    "TIDEGATE_DIRECTOR_TOKEN",
    "TIDEGATE_JOIN_KEY",
    POSTGRES,
];
/// The variable with the descriptor of the memory file.
pub(crate) const SECRETS_FD: &str = "TIDEGATE_SECRETS_FD";

static PASSED: OnceLock<HashMap<String, String>> = OnceLock::new();

/// The value of a variable, from the memory file or the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    PASSED
        .get()
        .and_then(|passed| passed.get(name).cloned())
        .or_else(|| from_environment(name))
}

/// Invalid UTF-8 is converted, because a secret must not be ignored.
fn from_environment(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}

/// Removes the secrets from the environment. The first call does not return: the program executes
/// itself again. Without secrets nothing happens.
pub(crate) fn hide() {
    if let Some(fd) = std::env::var(SECRETS_FD)
        .ok()
        .and_then(|text| text.parse().ok())
    {
        // If the user set the variable, there are no secrets, and everything else works.
        PASSED.set(receive(fd).unwrap_or_default()).ok();
        return;
    }
    let found: HashMap<&str, String> = NAMES
        .iter()
        .filter_map(|name| Some((*name, from_environment(name)?)))
        .collect();
    if found.is_empty() {
        return;
    }
    if let Err(error) = execute_again(&found) {
        // Logging has not started. The result is ignored, because stderr may be closed.
        writeln!(std::io::stderr(), "warning: failed to hide the secrets in the environment, a model of the same user can read them: {error}").ok();
    }
}

fn execute_again(secrets: &HashMap<&str, String>) -> std::io::Result<()> {
    let mut file = File::from(rustix::fs::memfd_create(
        "tidegate-secrets",
        MemfdFlags::empty(),
    )?);
    file.write_all(&serde_json::to_vec(secrets)?)?;
    file.seek(SeekFrom::Start(0))?;
    let mut arguments = std::env::args_os();
    let mut again = Command::new(std::env::current_exe()?);
    again
        .arg0(arguments.next().unwrap_or_default())
        .args(arguments)
        .env(SECRETS_FD, file.as_raw_fd().to_string());
    for name in NAMES {
        again.env_remove(name);
    }
    Err(again.exec())
}

fn receive(fd: i32) -> Option<HashMap<String, String>> {
    // The number may be any descriptor, so check that it is our file.
    let name = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    if !name
        .to_string_lossy()
        .starts_with("/memfd:tidegate-secrets")
    {
        return None;
    }
    let mut text = Vec::new();
    own(fd).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

#[expect(
    unsafe_code,
    reason = "std has no safe way to take ownership of a descriptor by its number"
)]
fn own(fd: i32) -> File {
    // SAFETY: the descriptor is open, because its name was just read; it is the file that
    // `execute_again` made, and no other code in this process uses it.
    unsafe { OwnedFd::from_raw_fd(fd) }.into()
}
