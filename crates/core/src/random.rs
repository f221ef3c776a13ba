//! Random bits for ids, nonces and pauses.

use std::cell::RefCell;

/// 128 random bits. One system call fetches the bits of many ids: a call for each would be a
/// measurable part of the time of a small job. In a build with the feature `simulation`, a thread that
/// simulates has its own.
pub fn bits() -> u128 {
    #[cfg(feature = "simulation")]
    if let Some(bits) = crate::simulation::random_bits() {
        return bits;
    }
    thread_local!(static POOL: RefCell<Vec<[u8; 16]>> = const { RefCell::new(Vec::new()) });
    POOL.with_borrow_mut(|pool| {
        if pool.is_empty() {
            pool.resize(64, [0; 16]);
            getrandom::fill(pool.as_flattened_mut()).expect("the system provides random bits");
        }
        u128::from_le_bytes(pool.pop().expect("the pool was just filled"))
    })
}

/// A number from 0 to 1.
pub fn fraction() -> f64 {
    let bits = u32::try_from(bits() & u128::from(u32::MAX)).unwrap_or_default();
    f64::from(bits) / f64::from(u32::MAX)
}
