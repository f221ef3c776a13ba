//! The bytes of files: in a local folder, or in a bucket of S3.

mod folder;
mod s3;

pub use folder::FolderBlobs;
pub use s3::{InvalidBucket, S3Blobs};
