//! What every face needs and none owns.

pub(crate) mod body;
pub(crate) mod deadline;
pub(crate) mod depth;
pub(crate) mod json;
pub(crate) mod lists;
pub(crate) mod object;
