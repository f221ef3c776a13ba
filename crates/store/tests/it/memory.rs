//! The conformance suite for documents on the documents in memory.

use std::sync::Arc;

use tidegate_store::MemoryDocuments;

async fn open() -> ((), Arc<MemoryDocuments>) {
    ((), Arc::default())
}

tidegate_store::conformance!(@documents open);
