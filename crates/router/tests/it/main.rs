//! Admission and the control plane, through the public interface of the crate.

mod admission;
mod consul;
mod control_kit;
mod dns;
mod fleet_reference;
mod join;
mod learn;
mod model_schemas;
mod probe;
mod queue_order;
mod reload;
mod stub_dns;
mod stub_server;
mod testkit;
