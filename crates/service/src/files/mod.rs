//! Files on their way in and out: addresses in inputs become local paths, files in outputs become
//! data URIs, addresses of uploads, or names of files that are kept here.

mod disk_space;
pub(crate) mod file_name;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod input_files;
mod output_files;
pub(crate) mod store;

use std::sync::Arc;

pub use disk_space::free_space;
pub use file_name::from_mime as file_name_for_mime;
pub use output_files::MAX_INLINE as MAX_INLINE_FILE;

pub(crate) use output_files::OutputOwner;

use tidegate_net::{Client, Url};

use crate::files::store::FileStore;

/// How files get in and out.
#[derive(Clone)]
pub struct Files {
    /// The way out.
    pub net: Arc<Client>,
    /// Where output files are put; without it they are kept here or become data URIs.
    pub upload_url: Option<Url>,
    /// To whom output files must belong: the user that the model's code runs as, when it is not ours. We
    /// could read files for it that it cannot read itself.
    pub owner: Option<u32>,
    /// Files that are kept here. Inputs that name them are read where they are: the server does not call
    /// itself, which its own guard would forbid.
    pub file_store: Option<Arc<FileStore>>,
}
