//! Whether an input fits the model: checked once, here, before Python sees anything.

mod schema;
mod tree;
mod validator;

pub use schema::ModelSchema;
pub(crate) use validator::{Checked, InputCheck};
