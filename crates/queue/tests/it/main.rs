//! The contract of the queues on a real Redis server.

mod blue_green;
mod faults;
mod redis_server;
mod streams;
mod suite;
mod upkeep;
