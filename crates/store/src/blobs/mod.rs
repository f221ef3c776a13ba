//! The bytes of files: in a folder of this machine, or in a bucket.

mod folder;
mod s3;

pub use folder::FolderBlobs;
pub use s3::{InvalidBucket, S3Blobs};
