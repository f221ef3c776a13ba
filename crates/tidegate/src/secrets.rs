//! The server's own secrets, which the model's code must not see.
//!
//! They come as variables, and a process shows the variables it was started with to every process of
//! the same user for as long as it lives: hiding them from a child's environment is not enough, it can
//! read ours. So `serve` begins by starting itself again in the same process, without them; they come
//! along in memory that is wiped when it has been read.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, memfd_create};

/// Their names.
pub(crate) const NAMES: [&str; 3] = ["WEBHOOK_AUTH_TOKEN", "TIDEGATE_API_TOKENS", "TIDEGATE_API_TOKEN"];
/// Set for the second start: the secrets are on standard input, which `serve` has no other use for.
pub(crate) const HANDED_OVER: &str = "TIDEGATE_SECRETS_ON_STDIN";

static HANDED: OnceLock<BTreeMap<OsString, OsString>> = OnceLock::new();

/// A variable that may be one of the secrets.
pub(crate) fn var(name: &str) -> Option<OsString> {
    HANDED.get().and_then(|handed| handed.get(OsStr::new(name)).cloned()).or_else(|| std::env::var_os(name))
}

/// Takes the secrets out of the environment: does not return, unless there are none (any more) or it
/// cannot be done here.
pub(crate) fn leave_environment() -> std::io::Result<()> {
    if std::env::var_os(HANDED_OVER).is_some() {
        HANDED.get_or_init(|| receive().unwrap_or_default());
        return Ok(());
    }
    let secrets: Vec<_> = NAMES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))).collect();
    if secrets.is_empty() {
        return Ok(());
    }
    let mut memory = File::from(memfd_create("secrets", MemfdFlags::CLOEXEC)?);
    memory.write_all(&packed(&secrets))?;
    memory.seek(SeekFrom::Start(0))?;
    let mut again = Command::new(std::env::current_exe()?);
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    again.args(arguments).stdin(memory).env(HANDED_OVER, "1");
    for name in NAMES {
        again.env_remove(name);
    }
    Err(again.exec())
}

/// Reads what the first start has left and wipes it. Whoever sets the variable by hand has no secrets.
fn receive() -> std::io::Result<BTreeMap<OsString, OsString>> {
    let mut memory = File::options().read(true).write(true).open("/proc/self/fd/0")?;
    let mut packed = Vec::new();
    memory.read_to_end(&mut packed)?;
    memory.set_len(0)?;
    Ok(unpacked(&packed))
}

/// Names and values, each with the zero at its end that none of them can contain.
fn packed(secrets: &[(&str, OsString)]) -> Vec<u8> {
    let texts = secrets.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    texts.flat_map(|text| text.iter().copied().chain([0])).collect()
}

fn unpacked(packed: &[u8]) -> BTreeMap<OsString, OsString> {
    let mut texts = packed.split(|byte| *byte == 0).map(|text| OsString::from_vec(text.to_vec()));
    std::iter::from_fn(|| Some((texts.next()?, texts.next()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_arrive_as_they_were() {
        let odd = OsString::from_vec(vec![b'a', 0xff, b'=', b'\n']);
        let secrets = [("ONE", odd), ("TWO", OsString::new()), ("THREE", "3".into())];
        let arrived = unpacked(&packed(&secrets));
        assert_eq!(arrived.len(), 3);
        for (name, value) in secrets {
            assert_eq!(arrived.get(OsStr::new(name)), Some(&value), "{name}");
        }
        assert!(unpacked(b"").is_empty());
    }
}
