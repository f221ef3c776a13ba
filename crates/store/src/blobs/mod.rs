//! The bytes of files: in a folder of this machine, or in a bucket.

mod bucket;
mod folder;

pub use bucket::{BadBucket, Bucket};
pub use folder::Folder;
