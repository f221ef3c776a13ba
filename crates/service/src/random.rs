//! Random bits for ids.

use std::cell::RefCell;

/// 128 random bits. They are fetched for many ids at once: one system call for each would be a visible
/// part of a small job.
pub(crate) fn bits() -> u128 {
    thread_local!(static BITS: RefCell<Vec<[u8; 16]>> = const { RefCell::new(Vec::new()) });
    BITS.with_borrow_mut(|stock| {
        if stock.is_empty() {
            stock.resize(64, [0; 16]);
            getrandom::fill(stock.as_flattened_mut()).expect("the system gives random bits");
        }
        u128::from_le_bytes(stock.pop().expect("it was just filled"))
    })
}

/// A number from 0 to 1.
pub(crate) fn fraction() -> f64 {
    let bits = u32::try_from(bits() & u128::from(u32::MAX)).unwrap_or_default();
    f64::from(bits) / f64::from(u32::MAX)
}
