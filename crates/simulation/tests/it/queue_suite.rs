//! The conformance suite of the queue on the simulated one.

use std::sync::Arc;

use jiff::Timestamp;
use tidegate_simulation::clock::SimulatedClock;
use tidegate_simulation::faults::{FaultRates, Faults, SharedServer};
use tidegate_simulation::link::{ProcessLife, ServerLink};
use tidegate_simulation::queue::{QueueClient, QueueServer};
use tidegate_simulation::random::SeededRandom;

async fn open() -> ((), Arc<QueueClient>) {
    let clock = SimulatedClock::starting_at(Timestamp::now().as_microsecond());
    let server = QueueServer::new(clock, None);
    let faults = Faults::new(SeededRandom::new(1), FaultRates::NONE);
    let link = ServerLink::new(
        ProcessLife::default(),
        Arc::new(faults),
        SharedServer::Queue,
    );
    let client = QueueClient::new(Arc::new(server), link, "one");
    ((), Arc::new(client))
}

tidegate_queue::conformance!(open);
