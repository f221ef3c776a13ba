//! Helpers that several APIs use: reading and parsing request bodies, headers, and JSON responses.

pub(crate) mod body_limit;
pub(crate) mod cancel_after;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
pub(crate) mod header_lists;
pub(crate) mod json_depth;
pub(crate) mod json_fields;
pub(crate) mod json_object;
pub(crate) mod parse_body;
pub(crate) mod parts_body;
pub(crate) mod response;
pub(crate) mod trace_headers;
pub(crate) mod warnings;
