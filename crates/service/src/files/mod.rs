//! Files of jobs: URLs in inputs become local paths; files in outputs become data URIs, URLs of the
//! upload target, or placeholders for files in the file store.

mod disk_space;
pub(crate) mod file_name;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod input_downloads;
mod input_files;
mod output_files;
mod output_uploads;
pub(crate) mod store;
mod stored_inputs;

use std::sync::Arc;

pub use disk_space::free_space;
pub use file_name::{from_mime as file_name_for_mime, from_url as file_name_of_url};
pub use input_downloads::{InputDownloadError, InputDownloads};
pub use output_files::MAX_INLINE as MAX_INLINE_FILE;
pub use output_uploads::{OutputUpload, OutputUploads};

pub(crate) use input_files::InputOwner;
pub(crate) use output_files::OutputOwner;
pub(crate) use stored_inputs::StoredInputs;

use tidegate_net::{Client, Url};

use crate::files::store::FileStore;

/// Fetches the files of inputs and publishes the files of outputs.
#[derive(Clone)]
pub struct Files {
    /// The HTTP client for downloads and uploads.
    pub net: Arc<Client>,
    /// Output files are uploaded below this URL. Without it they go to the file store or become
    /// data URIs.
    pub upload_url: Option<Url>,
    /// The user id that must own output files: the user of the model's code, if it is not the
    /// server's user. The server could read files that the model cannot read itself.
    pub owner: Option<u32>,
    /// The stored files. An input file that is stored here is copied from the store: the server
    /// does not send requests to itself, which its outbound guard would refuse.
    pub file_store: Option<Arc<FileStore>>,
}
