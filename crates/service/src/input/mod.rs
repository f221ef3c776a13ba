//! Whether an input fits the model: checked once, here, before Python sees anything.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod schema;
mod tree;
mod validator;

pub use schema::ModelSchema;
pub(crate) use validator::{CheckedInput, InputValidator};
