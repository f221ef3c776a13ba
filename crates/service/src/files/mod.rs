//! Files on their way in and out: addresses in inputs become local paths, files in outputs become
//! data URIs or addresses of uploads.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod incoming;
pub(crate) mod name;
mod outgoing;
mod space;

use std::path::PathBuf;
use std::sync::Arc;

pub use name::of_mime as file_name_for;
pub use outgoing::MAX_INLINE as MAX_INLINE_FILE;
pub use space::room_in;

use tidegate_core::Account;
use tidegate_net::{Client, Url};

/// How files get in and out.
#[derive(Clone)]
pub struct Files {
    /// The way out.
    pub net: Arc<Client>,
    /// Where output files are put; without it they become data URIs.
    pub upload_to: Option<Url>,
    /// To whom output files must belong: the user that the model's code runs as, when it is not ours. We
    /// could read files for it that it cannot read itself.
    pub owner: Option<u32>,
    /// Files that callers have left with this server.
    pub own: Option<Arc<dyn OwnFiles>>,
}

/// Files that callers have left with this server. They are read where they are: the server does not call
/// itself, which its own guard would forbid.
pub trait OwnFiles: Send + Sync {
    /// The file that this address names, if the account has it.
    fn find(&self, account: &Account, url: &Url) -> Option<OwnFile>;
}

/// A file that a caller has left with this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnFile {
    /// Where its bytes are.
    pub path: PathBuf,
    /// How its owner calls it: any text.
    pub name: String,
    /// How many bytes it has.
    pub size: u64,
}
