//! Files on their way in and out: addresses in inputs become local paths, files in outputs become
//! data URIs or addresses of uploads.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod incoming;
mod name;
mod outgoing;

use std::sync::Arc;

pub use name::of_mime as file_name_for;

use tidegate_net::{Client, Url};

/// How files get in and out.
pub struct Files {
    /// The way out.
    pub net: Arc<Client>,
    /// Where output files are put; without it they become data URIs.
    pub upload_to: Option<Url>,
}
