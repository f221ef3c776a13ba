//! The conformance suite on every blob backend.

mod folder {
    use std::path::PathBuf;
    use std::sync::Arc;

    use tempfile::TempDir;
    use tidegate_core::blobs::Blobs;
    use tidegate_store::FolderBlobs;

    async fn open() -> (TempDir, PathBuf, Arc<dyn Blobs>) {
        let folder = TempDir::new().expect("a folder for the test");
        let files = folder.path().join("files");
        let blobs = FolderBlobs::open(files.clone()).expect("an empty folder");
        (folder, files, Arc::new(blobs))
    }

    tidegate_store::blobs_conformance!(open);
}

mod s3 {
    use std::path::PathBuf;
    use std::sync::Arc;

    use tempfile::TempDir;
    use tidegate_core::blobs::Blobs;
    use tidegate_store::S3Blobs;

    async fn open() -> (TempDir, PathBuf, Arc<dyn Blobs>) {
        let spool = TempDir::new().expect("a folder for the test");
        let path = spool.path().to_owned();
        (spool, path, Arc::new(S3Blobs::in_memory("some/where")))
    }

    tidegate_store::blobs_conformance!(open);
}
