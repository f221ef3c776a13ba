//! The lock of the pool's state: the standard mutex in the product, loom's mutex in the tests.

/// A mutex that ignores poisoning: code under it cannot panic halfway.
pub trait Lock<S> {
    /// Wraps the state.
    fn new(state: S) -> Self;
    /// Runs `f` with exclusive access to the state.
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
