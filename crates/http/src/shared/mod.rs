//! What every face needs and none owns.

pub(crate) mod body;
pub(crate) mod deadline;
pub(crate) mod depth;
pub(crate) mod envelope;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod json;
pub(crate) mod lists;
pub(crate) mod object;
pub(crate) mod trace;
