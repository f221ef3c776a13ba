//! The bytes of files: in a folder of this machine.

mod folder;

pub use folder::Folder;
