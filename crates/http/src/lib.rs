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
pub mod metrics;
pub mod replicate;
pub mod runpod;
mod shared;
mod traffic;

pub use traffic::Traffic;

use std::sync::Arc;

use tidegate_core::record::Face;
use tidegate_service::{Wording, WordingOf};

/// How the faces tell a job to the receiver of a webhook; a server has one of the two faces of Runpod.
pub fn wording(replicate: replicate::Voice, runpod: fn() -> Wording) -> WordingOf {
    Arc::new(move |face, hook| match face {
        Face::Replicate => replicate.wording(hook),
        Face::Runpod => runpod(),
        Face::Cog => Wording::new(cog::reply::result_body),
    })
}
