//! How the pool's ledger is locked: the standard mutex in the product, loom's in the model checker.

/// A mutex that never stays poisoned: what happens under it cannot panic half way.
pub trait Lock<S> {
    /// Wraps the state.
    fn new(state: S) -> Self;
    /// Runs `f` alone with the state.
    fn with<R>(&self, f: impl FnOnce(&mut S) -> R) -> R;
}

impl<S> Lock<S> for std::sync::Mutex<S> {
    fn new(state: S) -> Self {
        std::sync::Mutex::new(state)
    }

    fn with<R>(&self, f: impl FnOnce(&mut S) -> R) -> R {
        f(&mut self
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
