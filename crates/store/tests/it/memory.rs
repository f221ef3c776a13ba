//! What the suite asks of documents, of those in memory.

use std::sync::Arc;

use tidegate_store::Memory;

async fn open() -> ((), Arc<Memory>) {
    ((), Arc::default())
}

tidegate_store::conformance!(@documents open);
