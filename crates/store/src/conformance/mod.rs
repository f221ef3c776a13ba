//! The contract of every backend of the store, as tests. A bug found in one backend becomes a case
//! here.
//!
//! A backend writes `tidegate_store::conformance!(open);` in its tests, where `open` is an async
//! function that returns an empty store and a guard that cleans up when dropped. [`durability`]
//! needs a process of its own and is called directly. A backend with documents only writes
//! `conformance!(@documents open);`. A backend with leases of a cluster adds
//! `conformance!(@cluster_leases open);`, and `conformance!(@cluster_attempts open);` if it also records the
//! attempts.
#![expect(clippy::unwrap_used, reason = "these are tests")]

pub mod attempts;
pub mod batches;
pub mod begun_attempts;
pub mod blobs;
pub mod cluster_attempts;
pub mod cluster_leases;
pub mod documents;
pub mod durability;
pub mod interim_messages;
pub mod jobs;
pub mod leases;
pub mod lists;
pub mod open;
pub mod outbox;
pub mod postgres_server;
pub mod races;
pub mod retention;
pub mod samples;
pub mod unqueued_jobs;

/// Generates a test for every case of the suite. `$open` is `async fn() -> (Guard, Arc<Backend>)`.
#[macro_export]
macro_rules! conformance {
    ($open:ident) => {
        $crate::conformance!(@cases $open, jobs:
            every_field_of_a_spec_is_stored,
            absent_fields_stay_absent,
            an_unknown_job_is_none,
            a_known_id_returns_its_record,
            accounts_have_their_own_ids,
            a_finished_job_can_be_replaced,
            every_field_of_a_completion_is_stored,
            every_terminal_status_is_stored,
            a_queued_job_is_finished_by_attempt_zero,
            a_finished_job_does_not_change,
            a_non_terminal_status_is_refused,
            any_text_is_stored,
            ten_mebibytes_are_stored,
        );
        $crate::conformance!(@cases $open, leases:
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
        $crate::conformance!(@cases $open, attempts:
            a_job_that_runs_once_has_one_attempt,
            lost_attempts_are_on_record,
            the_oldest_attempts_are_forgotten,
        );
        $crate::conformance!(@cases $open, batches:
            jobs_that_are_inserted_together_are_stored_as_they_are,
            jobs_that_end_together_each_have_their_end,
        );
        $crate::conformance!(@cases $open, open:
            open_jobs_come_in_the_order_of_acceptance,
            finished_jobs_are_not_returned,
            numbers_are_never_reused,
            open_jobs_come_without_their_inputs,
            five_thousand_jobs_are_returned_once_each,
        );
        $crate::conformance!(@cases $open, races:
            one_id_from_many_callers_is_new_once,
            one_of_many_ends_succeeds,
            a_job_begins_or_is_canceled,
            one_of_many_leases_is_granted,
            acknowledged_changes_are_visible,
            one_of_many_new_documents_is_stored,
            no_change_of_a_document_is_lost,
        );
        $crate::conformance!(@cases $open, lists:
            newest_come_first,
            lists_are_by_account_and_kind,
            bounds_are_from_and_before,
            pages_lead_forward_and_back,
            pages_are_stable_in_any_order_of_timestamps,
            a_full_last_page_has_no_next,
            new_jobs_do_not_move_the_pages,
            a_cursor_outlives_its_job,
            bounds_hold_on_every_page,
            an_invalid_cursor_gives_an_empty_page,
            any_limit_is_valid,
            large_jobs_make_short_pages,
            summaries_of_recent_jobs_of_all_accounts,
        );
        $crate::conformance!(@cases $open, outbox:
            a_message_is_stored_with_the_end,
            no_end_no_message,
            a_message_can_be_stored_with_a_claim,
            a_message_is_taken_again_when_its_claim_has_ended,
            every_message_is_taken_once,
            a_retry_is_due_after_its_pause,
            only_the_holder_of_the_claim_can_reschedule,
            receivers_get_equal_parts,
            the_bytes_of_taken_messages_are_limited,
            a_settled_message_is_not_pending,
            messages_are_listed,
            pending_messages_are_counted,
            a_settled_message_can_be_reopened,
            a_waiting_message_can_be_made_due,
            settled_messages_are_deleted,
            messages_outlive_their_jobs,
        );
        $crate::conformance!(@cases $open, retention:
            data_of_old_jobs_is_removed,
            removing_stops_at_the_limit,
            open_and_recent_jobs_keep_their_data,
            old_jobs_are_deleted,
            deleting_stops_at_the_limit,
            the_id_of_a_deleted_job_is_free,
        );
        $crate::conformance!(@documents $open);
    };
    (@cluster_leases $open:ident) => {
        $crate::conformance!(@cases $open, cluster_leases:
            a_lease_is_granted_with_the_record,
            a_lease_is_granted_with_a_large_input,
            the_same_nonce_gets_the_same_lease,
            the_holder_of_a_lease_is_known,
            a_live_lease_refuses_others,
            an_expired_lease_is_granted_to_another,
            a_late_end_of_the_last_holder_counts,
            an_expired_lease_is_returned_once,
            a_later_boot_supersedes_the_earlier,
            canceled_ended_and_unknown_jobs_have_no_lease,
            an_overdue_job_has_no_lease,
            a_job_is_started_a_limited_number_of_times,
            a_released_lease_does_not_count,
            the_progress_of_jobs_is_known,
            heartbeats_keep_leases,
            a_heartbeat_reports_cancels_and_lost_leases,
            a_heartbeat_reports_leases_that_it_does_not_list,
            a_retired_director_has_no_leases,
            leases_directors_and_due_messages_are_counted,
            one_of_many_directors_gets_the_lease,
            a_cancel_races_with_a_lease,
        );
        mod together {
            use super::*;
            $crate::conformance!(@cases $open, batches:
                leases_that_are_requested_together_are_decided_one_by_one,
                changes_of_all_kinds_are_made_together,
            );
        }
        $crate::conformance!(@cases $open, begun_attempts:
            attempts_that_have_begun_are_found,
        );
        $crate::conformance!(@cases $open, unqueued_jobs:
            unqueued_jobs_are_found,
            an_unqueued_job_is_claimed_once,
            a_late_mark_is_ignored,
            jobs_that_have_waited_for_long_are_found_again,
        );
        $crate::conformance!(@cases $open, interim_messages:
            an_interim_message_is_replaced,
            no_interim_message_is_sent_after_the_final_one,
            an_interim_message_of_a_lost_sender_is_dropped,
            an_outdated_lease_stores_no_message,
        );
    };
    (@cluster_attempts $open:ident) => {
        $crate::conformance!(@cases $open, cluster_attempts:
            attempts_name_their_directors,
        );
    };
    (@documents $open:ident) => {
        $crate::conformance!(@cases $open, documents:
            put_replaces_a_document,
            put_new_keeps_the_first_document,
            a_swap_needs_the_current_document,
            a_removed_document_is_gone,
            documents_are_found_by_prefix,
            namespaces_are_separate,
        );
    };
    (@cases $open:ident, $part:ident: $($case:ident,)*) => {
        mod $part {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    let (_guard, store) = super::$open().await;
                    $crate::conformance::$part::$case(store).await;
                }
            )*
        }
    };
}
