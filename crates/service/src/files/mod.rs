//! Files on their way in and out: addresses in inputs become local paths, files in outputs become
//! data URIs or addresses of uploads.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod incoming;
mod name;
mod outgoing;
mod space;

use std::sync::Arc;

pub use name::of_mime as file_name_for;
pub use outgoing::MAX_INLINE as MAX_INLINE_FILE;
pub use space::room_in;

use tidegate_net::{Client, Url};

/// How files get in and out.
pub struct Files {
    /// The way out.
    pub net: Arc<Client>,
    /// Where output files are put; without it they become data URIs.
    pub upload_to: Option<Url>,
    /// To whom output files must belong: the user that the model's code runs as, when it is not ours. We
    /// could read files for it that it cannot read itself.
    pub owner: Option<u32>,
}
