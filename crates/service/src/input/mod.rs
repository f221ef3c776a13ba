//! Validation of inputs against the model's schema, before the input reaches Python.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod schema;
mod tree;
mod validator;

pub use schema::ModelSchema;
pub(crate) use validator::{CheckedInput, InputValidator};
