//! The conformance suite of the store on the simulated one, as far as a cluster uses it.

use std::sync::Arc;

use jiff::Timestamp;
use tidegate_simulation::clock::SimulatedClock;
use tidegate_simulation::faults::{FaultRates, Faults, SharedServer};
use tidegate_simulation::link::{ProcessLife, ServerLink};
use tidegate_simulation::random::SeededRandom;
use tidegate_simulation::store::{StoreClient, StoreServer};

async fn open() -> ((), Arc<StoreClient>) {
    // The cases compare with the clock of this machine.
    let clock = SimulatedClock::starting_at(Timestamp::now().as_microsecond());
    let server = StoreServer::new(clock, None, None);
    let faults = Faults::new(SeededRandom::new(1), FaultRates::NONE);
    let link = ServerLink::new(
        ProcessLife::default(),
        Arc::new(faults),
        SharedServer::Store,
    );
    ((), Arc::new(StoreClient::new(Arc::new(server), link)))
}

tidegate_store::conformance!(@cases open, jobs:
    every_field_of_a_spec_is_stored,
    an_unknown_job_is_none,
    a_known_id_returns_its_record,
    accounts_have_their_own_ids,
    a_finished_job_can_be_replaced,
    every_field_of_a_completion_is_stored,
    a_queued_job_is_finished_by_attempt_zero,
    a_finished_job_does_not_change,
    a_non_terminal_status_is_refused,
);
tidegate_store::conformance!(@cases open, leases:
    leases_count_the_attempts,
    a_repeated_request_gets_the_same_lease,
    a_leased_job_is_not_leased_again,
    ended_canceled_and_unknown_jobs_are_not_leased,
    a_job_is_inserted_with_its_lease,
    a_lease_ends_its_job_once,
    an_old_lease_cannot_end_the_job,
    an_unanswered_request_for_a_lease_can_be_ended,
    a_lost_attempt_is_ended_without_a_lease,
    a_job_with_a_cancel_request_ends_as_canceled,
    an_ended_job_takes_no_cancel_request,
);
tidegate_store::conformance!(@cases open, outbox:
    a_message_is_stored_with_the_end,
    no_end_no_message,
    a_message_can_be_stored_with_a_claim,
    a_message_is_taken_again_when_its_claim_has_ended,
    a_retry_is_due_after_its_pause,
    receivers_get_equal_parts,
    the_bytes_of_taken_messages_are_limited,
);
tidegate_store::conformance!(@cluster_leases open);
tidegate_store::conformance!(@documents open);
