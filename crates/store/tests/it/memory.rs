//! What the suite asks of documents, of those in memory.

use std::sync::Arc;

use tidegate_store::MemoryDocuments;

async fn open() -> ((), Arc<MemoryDocuments>) {
    ((), Arc::default())
}

tidegate_store::conformance!(@documents open);
