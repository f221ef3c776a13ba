//! A worker for somebody else's platform: fetches jobs by Runpod's protocol, runs them on an executor, and
//! brings back what came of them.
//!
//! [`Puller`] is the door. It talks to the executor directly and not through a desk: a desk keeps the newest
//! words of a job for whoever asks, and here every word must reach one listener in order, with the model
//! waiting when he is slow. Nothing here knows Python; what a returned value means is the [`Porter`]'s
//! business.

mod addresses;
mod delivery;
mod hand;
mod journal;
mod labour;
mod once;
mod pace;
mod platform;
mod port;
mod puller;
mod runner;
mod takes;
mod wire;

pub use addresses::{Addresses, BadTemplate, Delivered, Load, Templates};
pub use journal::{Journal, OpenError};
pub use once::once;
pub use platform::{Platform, SPEAKS};
pub use port::{AfterParts, Carried, EmptyObject, Habits, Porter, Refresh};
pub use puller::{OnLost, Options, Over, Parts, Puller};
pub use wire::{Ending, Job};
