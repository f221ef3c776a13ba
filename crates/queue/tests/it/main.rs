//! The contract of the queues on a real Redis server.

mod blue_green;
mod faults;
mod live;
mod rates;
mod redis_server;
mod sentinel;
mod streams;
mod suite;
mod upkeep;
mod upkeep_loops;
