//! The server's own secrets, kept where the model's code cannot read them.
//!
//! A process can read the environment that another one of its user was started with. So a server that
//! finds secrets in its own starts itself again without them, under the same process number, and hands
//! them over through a file that exists in memory only.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::MemfdFlags;

/// The variables that hold secrets.
pub(crate) const NAMES: [&str; 4] = [
    "WEBHOOK_AUTH_TOKEN",
    "TIDEGATE_API_TOKENS",
    "TIDEGATE_API_TOKEN",
    "TIDEGATE_WEBHOOK_SECRET",
];
/// Says to the second start where the secrets are.
pub(crate) const HANDED_OVER: &str = "TIDEGATE_SECRETS_FD";

static HANDED: OnceLock<HashMap<String, String>> = OnceLock::new();

/// A variable's value, from the environment or from what was handed over.
pub(crate) fn variable(name: &str) -> Option<String> {
    HANDED
        .get()
        .and_then(|handed| handed.get(name).cloned())
        .or_else(|| from_environment(name))
}

/// What is not text is made into some: a secret that cannot be read must not look like none.
fn from_environment(name: &str) -> Option<String> {
    Some(std::env::var_os(name)?.to_string_lossy().into_owned())
}

/// Takes the secrets out of the environment. The first time this does not return: the program starts
/// again. Without secrets nothing happens.
pub(crate) fn hide() {
    if let Some(fd) = std::env::var(HANDED_OVER)
        .ok()
        .and_then(|text| text.parse().ok())
    {
        // Whoever sets the variable by hand gets no secrets, and loses nothing else.
        HANDED.set(receive(fd).unwrap_or_default()).ok();
        return;
    }
    let found: HashMap<&str, String> = NAMES
        .iter()
        .filter_map(|name| Some((*name, from_environment(name)?)))
        .collect();
    if found.is_empty() {
        return;
    }
    if let Err(error) = start_again(&found) {
        // Logging has not begun; who has closed stderr does not want to know.
        writeln!(std::io::stderr(), "warning: a model of the same user can read the secrets in this server's environment: {error}").ok();
    }
}

fn start_again(secrets: &HashMap<&str, String>) -> std::io::Result<()> {
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
        .env(HANDED_OVER, file.as_raw_fd().to_string());
    for name in NAMES {
        again.env_remove(name);
    }
    Err(again.exec())
}

fn receive(fd: i32) -> Option<HashMap<String, String>> {
    // Only our own file is touched: the number may be anything.
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
    reason = "std has no safe way to take over a descriptor that was handed over by number"
)]
fn own(fd: i32) -> File {
    // SAFETY: it is open, as its name was just read; it is the file that `start_again` made, and nobody
    // else in this process knows of it.
    unsafe { OwnedFd::from_raw_fd(fd) }.into()
}
