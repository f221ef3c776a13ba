//! One job: insert, finish.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::record::JobSpec;
use tidegate_core::store::{FinishOutcome, Inserted, Store, StoreError};
use tidegate_core::{Account, Status};

use super::samples::*;

/// All fields of a spec are stored.
pub async fn every_field_of_a_spec_is_stored(store: Arc<dyn Store>) {
    assert_eq!(store.insert(full_spec("a")).await.unwrap(), Inserted::New);

    assert_eq!(get(&*store, "a").await, queued(full_spec("a")));
}

/// Absent fields stay absent.
pub async fn absent_fields_stay_absent(store: Arc<dyn Store>) {
    let least = JobSpec {
        account: Account::ANONYMOUS,
        input: Bytes::from_static(b"{}"),
        ..spec("a")
    };
    store.insert(least.clone()).await.unwrap();

    assert_eq!(
        store.get(&Account::ANONYMOUS, &id("a")).await.unwrap(),
        Some(queued(least))
    );
}

/// A job that was never inserted.
pub async fn an_unknown_job_is_none(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();

    assert_eq!(store.get(&ann(), &id("b")).await.unwrap(), None);
}

/// The second insert of an id returns the current record of the first and changes nothing.
pub async fn a_known_id_returns_its_record(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    leased(&*store, lease("a", 0, 1)).await;

    let second = store.insert(full_spec("a")).await.unwrap();

    let stored = get(&*store, "a").await;
    assert_eq!((&stored.spec, stored.attempt), (&spec("a"), 1));
    assert_eq!(second, Inserted::Known(Box::new(stored)));
}

/// A new job may replace a finished one with the same id, and no other.
pub async fn a_finished_job_can_be_replaced(store: Arc<dyn Store>) {
    assert_eq!(store.replace(spec("a")).await.unwrap(), Inserted::New);
    let Inserted::Known(open) = store.replace(full_spec("a")).await.unwrap() else {
        panic!("the job had not finished")
    };
    assert_eq!(open.spec, spec("a"));
    store.finish(finish("a", 0, 9)).await.unwrap();

    assert_eq!(store.replace(full_spec("a")).await.unwrap(), Inserted::New);
    assert_eq!(get(&*store, "a").await, queued(full_spec("a")));
}

/// The same id in several accounts is several jobs. The anonymous account is not the account
/// `anonymous`.
pub async fn accounts_have_their_own_ids(store: Arc<dyn Store>) {
    let accounts = [
        Account::ANONYMOUS,
        Account::parse("anonymous").unwrap(),
        ann(),
        Account::parse("Ann").unwrap(),
    ];
    let of = |account: &Account| JobSpec {
        account: account.clone(),
        input: format!("{account:?}").into(),
        ..spec("a")
    };
    for account in &accounts {
        assert_eq!(store.insert(of(account)).await.unwrap(), Inserted::New);
    }
    for account in &accounts {
        assert_eq!(
            store.get(account, &id("a")).await.unwrap(),
            Some(queued(of(account)))
        );
    }
}

/// All fields of a completion are stored, and the spec is unchanged.
pub async fn every_field_of_a_completion_is_stored(store: Arc<dyn Store>) {
    store.insert(full_spec("a")).await.unwrap();
    let fence = leased(&*store, lease("a", 0, 1)).await;
    assert!(ends(&*store, finish_leased("a", fence, 2)).await);

    let stored = get(&*store, "a").await;
    assert_eq!(
        (stored.status, stored.started_at),
        (Status::Succeeded, Some(at(1)))
    );
    assert_eq!(
        (stored.spec, stored.completion),
        (full_spec("a"), Some(completion(2)))
    );
}

/// Every terminal status, also without output, logs and error.
pub async fn every_terminal_status_is_stored(store: Arc<dyn Store>) {
    for status in [
        Status::Succeeded,
        Status::Failed,
        Status::Canceled,
        Status::Aborted,
    ] {
        let name = format!("{status:?}");
        store.insert(spec(&name)).await.unwrap();
        let mut end = finish(&name, 0, 1);
        end.status = status;
        end.completion.output = None;
        end.completion.error = None;
        end.completion.logs.clear();
        end.completion.metrics.clear();
        assert!(ends(&*store, end.clone()).await);

        let stored = get(&*store, &name).await;
        assert_eq!(
            (stored.status, stored.completion),
            (status, Some(end.completion))
        );
    }
}

/// A job that never began can be canceled.
pub async fn a_queued_job_is_finished_by_attempt_zero(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    assert!(ends(&*store, finish("a", 0, 1)).await);

    let stored = get(&*store, "a").await;
    assert_eq!(
        (stored.status, stored.attempt, stored.started_at),
        (Status::Succeeded, 0, None)
    );
}

/// The first end counts. An unknown job cannot be finished.
pub async fn a_finished_job_does_not_change(store: Arc<dyn Store>) {
    over(&*store, "a", 1).await;
    let before = get(&*store, "a").await;
    let mut second = finish("a", 0, 2);
    second.status = Status::Failed;

    for late in [second, finish("b", 0, 2)] {
        assert_eq!(store.finish(late).await.unwrap(), FinishOutcome::ByAnother);
    }
    assert_eq!(get(&*store, "a").await, before);
}

/// A status that is not terminal is refused and changes nothing.
pub async fn a_non_terminal_status_is_refused(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    for status in [Status::Queued, Status::Starting, Status::Processing] {
        let mut end = finish("a", 0, 1);
        end.status = status;
        let refused = store.finish(end).await;
        assert!(
            matches!(refused, Err(StoreError::Invalid(_))),
            "{refused:?}"
        );
    }
    assert_eq!(get(&*store, "a").await, queued(spec("a")));
}

/// Arbitrary text of users and models.
pub async fn any_text_is_stored(store: Arc<dyn Store>) {
    let strange =
        "Ωμέγα 🦀 'quoted' \"twice\" %_; DROP TABLE jobs; -- \u{0} end \u{1b}[31m \u{2028}";
    let mut job = full_spec("Ü 🦀 ';--");
    job.input = Bytes::from(serde_json::to_vec(&serde_json::json!({ "text": strange })).unwrap());
    job.context = BTreeMap::from([(strange.to_owned(), strange.to_owned())]);
    job.target.model = strange.to_owned();
    store.insert(job.clone()).await.unwrap();
    let mut end = finish(job.id.as_str(), 0, 1);
    end.completion.logs = strange.repeat(3);
    end.completion.error = Some(strange.to_owned());
    end.completion
        .metrics
        .insert(strange.to_owned(), strange.into());
    store.finish(end.clone()).await.unwrap();

    let stored = get(&*store, job.id.as_str()).await;
    assert_eq!(
        (stored.spec, stored.completion),
        (job, Some(end.completion))
    );
}

/// Large inputs and outputs, byte for byte.
pub async fn ten_mebibytes_are_stored(store: Arc<dyn Store>) {
    let large = Bytes::from(
        (0..10 << 20)
            .map(|n: u32| (n % 251) as u8)
            .collect::<Vec<_>>(),
    );
    let job = JobSpec {
        input: large.clone(),
        ..spec("a")
    };
    store.insert(job).await.unwrap();
    let fence = leased(&*store, lease("a", 0, 1)).await;
    let mut end = finish_leased("a", fence, 2);
    end.completion.output = Some(large.clone());
    end.completion.logs = "line\n".repeat(1 << 20);
    store.finish(end.clone()).await.unwrap();

    let stored = get(&*store, "a").await;
    assert!(stored.spec.input == large, "the input");
    assert!(stored.completion == Some(end.completion), "the completion");
}
