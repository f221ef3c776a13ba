//! Validation of inputs against the model's schema, before the input reaches Python.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod hints;
mod long_strings;
mod output_type;
mod schema;
mod tree;
mod unknown_names;
mod validator;

pub(crate) use output_type::{JsonType, OutputTypes};
pub use schema::ModelSchema;
pub use unknown_names::closest_name;
pub(crate) use validator::{CheckedInput, InputValidator};
