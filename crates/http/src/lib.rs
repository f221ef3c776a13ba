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
mod shared;
mod traffic;

pub use traffic::Traffic;

use tidegate_core::record::Face;
use tidegate_service::{Wording, WordingOf};

/// How the faces tell a job to the receiver of a webhook, who reached us by this address.
pub fn wording(replicate: replicate::Voice) -> WordingOf {
    Box::new(move |face, origin| match (face, origin) {
        (Face::Replicate, Some(origin)) => replicate.wording(origin),
        (Face::Cog, _) | (Face::Replicate, None) => Wording::new(cog::reply::result_body),
    })
}
