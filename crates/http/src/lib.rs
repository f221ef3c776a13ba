//! The faces: HTTP dialects side by side on one port. Each folder is one dialect with the same rooms:
//! `mod.rs` is its route table, `wire.rs` its types, `reply.rs` how the desk's answers are said in it.
//! `edge` is what stands before all of them.

pub mod access;
pub mod admin;
pub mod cog;
pub mod edge;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod shared;

use bytes::Bytes;
use tidegate_core::record::Face;
use tidegate_service::Snapshot;

/// How a face tells a job to the receiver of a webhook.
pub fn webhook_body(face: Face) -> fn(&Snapshot) -> Bytes {
    match face {
        Face::Cog | Face::Replicate => cog::reply::result_body,
    }
}
