//! What every backend of the store promises, as tests. One suite; a bug found in one backend becomes a case here.
//!
//! A backend writes `tidegate_store::conformance!(open);` in its tests, where `open` is an async function that
//! gives an empty store and something that cleans up behind it when dropped. [`durability`] needs a process of
//! its own and is called by hand. A backend that keeps documents only writes `conformance!(@documents open);`.
#![expect(clippy::unwrap_used, reason = "these are tests")]

pub mod blobs;
pub mod documents;
pub mod durability;
pub mod jobs;
pub mod lists;
pub mod open;
pub mod outbox;
pub mod races;
pub mod retention;
pub mod samples;

/// Makes a test of every case of the suite. `$open` is `async fn() -> (Guard, Arc<Backend>)`.
#[macro_export]
macro_rules! conformance {
    ($open:ident) => {
        $crate::conformance!(@cases $open, jobs:
            a_new_job_is_kept_whole,
            the_least_of_a_job_is_kept_whole,
            an_unknown_job_is_none,
            a_taken_id_gives_what_is_kept,
            accounts_have_their_own_ids,
            what_is_over_gives_its_id_away,
            begin_counts_the_attempts,
            what_is_over_or_unknown_does_not_begin,
            an_ending_is_kept_whole,
            every_end_is_kept,
            an_end_can_note_the_begin_too,
            a_queued_job_is_ended_by_attempt_zero,
            a_cancel_that_was_asked_for_is_kept,
            an_old_attempt_has_no_say,
            what_is_over_stays_as_it_is,
            only_an_end_ends_a_job,
            any_text_is_kept,
            ten_mebibytes_are_kept,
        );
        $crate::conformance!(@cases $open, open:
            open_jobs_come_in_the_order_of_acceptance,
            what_is_over_is_not_open,
            numbers_are_never_given_twice,
            large_open_jobs_all_come,
            five_thousand_jobs_come_once_each,
        );
        $crate::conformance!(@cases $open, races:
            one_id_from_many_callers_is_new_once,
            one_of_many_ends_is_taken,
            a_job_begins_or_is_canceled,
            what_was_acknowledged_is_seen,
            one_of_many_documents_is_kept,
            no_change_of_a_document_is_lost,
        );
        $crate::conformance!(@cases $open, lists:
            newest_come_first,
            lists_are_by_account_and_kind,
            bounds_are_from_and_before,
            pages_lead_forth_and_back,
            pages_hold_in_any_order_of_moments,
            a_full_last_page_has_no_next,
            new_jobs_do_not_move_the_pages,
            a_cursor_outlives_its_job,
            bounds_hold_on_every_page,
            a_foreign_cursor_leads_nowhere,
            any_limit_is_good,
            large_jobs_make_short_pages,
            recent_jobs_of_all_accounts_in_a_few_words,
        );
        $crate::conformance!(@cases $open, outbox:
            a_letter_is_kept_with_the_end,
            no_end_no_letter,
            letters_come_in_the_order_in_which_they_were_kept,
            a_settled_letter_is_not_sent_any_more,
            settled_letters_can_be_looked_up,
            a_settled_letter_can_be_sent_again,
            settled_letters_are_forgotten,
            letters_outlive_their_jobs,
        );
        $crate::conformance!(@cases $open, retention:
            data_of_old_jobs_is_removed,
            removing_stops_at_the_limit,
            what_is_open_or_young_keeps_its_data,
            old_jobs_are_forgotten,
            forgetting_stops_at_the_limit,
            a_forgotten_id_is_free,
        );
        $crate::conformance!(@documents $open);
    };
    (@documents $open:ident) => {
        $crate::conformance!(@cases $open, documents:
            the_last_document_counts,
            the_first_document_stays,
            a_document_is_swapped_for_what_was_read,
            a_removed_document_is_gone,
            documents_are_found_by_prefix,
            shelves_are_apart,
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
