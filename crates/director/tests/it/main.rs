//! Tests of a director with a fake API, a queue in memory, and a fake model that the test controls.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod cog_server;
mod draining;
mod fake_api;
mod fake_model;
mod faults;
mod harness;
mod hooks;
mod live_events;
mod models;
mod outputs;
mod redis_queue;
mod running;
