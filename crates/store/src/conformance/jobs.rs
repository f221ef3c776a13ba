//! One job: kept, begun, ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::record::{JobRecord, JobSpec};
use tidegate_core::store::{Inserted, JobFinish, Store, StoreError};
use tidegate_core::{Account, Status};

use super::samples::*;

/// All of an order comes back.
pub async fn a_new_job_is_kept_whole(store: Arc<dyn Store>) {
    assert_eq!(store.insert(full_spec("a")).await.unwrap(), Inserted::New);

    assert_eq!(get(&*store, "a").await, queued(full_spec("a")));
}

/// Absent things stay absent.
pub async fn the_least_of_a_job_is_kept_whole(store: Arc<dyn Store>) {
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

/// There is nothing before somebody put it there.
pub async fn an_unknown_job_is_none(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();

    assert_eq!(store.get(&ann(), &id("b")).await.unwrap(), None);
}

/// The second of one id learns of the first, as it is now, and changes nothing.
pub async fn a_taken_id_gives_what_is_kept(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    store.begin(&ann(), &id("a"), at(5)).await.unwrap();

    let second = store.insert(full_spec("a")).await.unwrap();

    let kept = get(&*store, "a").await;
    assert_eq!((&kept.spec, kept.attempt), (&spec("a"), 1));
    assert_eq!(second, Inserted::Known(Box::new(kept)));
}

/// A new job may take the place of one that is over, and of no other.
pub async fn what_is_over_gives_its_id_away(store: Arc<dyn Store>) {
    assert_eq!(store.replace(spec("a")).await.unwrap(), Inserted::New);
    let Inserted::Known(open) = store.replace(full_spec("a")).await.unwrap() else {
        panic!("it was not over")
    };
    assert_eq!(open.spec, spec("a"));
    store.finish(finish("a", 0, 9)).await.unwrap();

    assert_eq!(store.replace(full_spec("a")).await.unwrap(), Inserted::New);
    assert_eq!(get(&*store, "a").await, queued(full_spec("a")));
}

/// The same id in several accounts is several jobs; nobody's account is not the one called `anonymous`.
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

/// A job that begins again has a new number and a new start.
pub async fn begin_counts_the_attempts(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    assert_eq!(store.begin(&ann(), &id("a"), at(1)).await.unwrap(), Some(1));
    assert_eq!(store.begin(&ann(), &id("a"), at(2)).await.unwrap(), Some(2));

    let kept = get(&*store, "a").await;
    assert_eq!(
        (kept.status, kept.attempt, kept.started_at),
        (Status::Processing, 2, Some(at(2)))
    );
}

/// Only what is open can begin.
pub async fn what_is_over_or_unknown_does_not_begin(store: Arc<dyn Store>) {
    over(&*store, "a", 1).await;
    let before = get(&*store, "a").await;

    assert_eq!(store.begin(&ann(), &id("a"), at(2)).await.unwrap(), None);
    assert_eq!(store.begin(&ann(), &id("b"), at(2)).await.unwrap(), None);
    assert_eq!(get(&*store, "a").await, before);
}

/// All of an ending comes back, and the order is as it was.
pub async fn an_ending_is_kept_whole(store: Arc<dyn Store>) {
    store.insert(full_spec("a")).await.unwrap();
    store.begin(&ann(), &id("a"), at(1)).await.unwrap();
    assert!(store.finish(finish("a", 1, 2)).await.unwrap());

    let kept = get(&*store, "a").await;
    assert_eq!(
        (kept.status, kept.started_at),
        (Status::Succeeded, Some(at(1)))
    );
    assert_eq!(
        (kept.spec, kept.completion),
        (full_spec("a"), Some(completion(2)))
    );
}

/// A job that is over before its begin was noted has one attempt more, and another attempt has no say.
pub async fn an_end_can_note_the_begin_too(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    store.begin(&ann(), &id("a"), at(1)).await.unwrap();
    let began = |attempt| JobFinish {
        began_at: Some(at(2)),
        ..finish("a", attempt, 3)
    };
    assert!(!store.finish(began(0)).await.unwrap());
    assert!(store.finish(began(1)).await.unwrap());

    let kept = get(&*store, "a").await;
    assert_eq!(
        (kept.attempt, kept.started_at, kept.status),
        (2, Some(at(2)), Status::Succeeded)
    );
}

/// Every terminal status, also with nothing to show.
pub async fn every_end_is_kept(store: Arc<dyn Store>) {
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
        assert!(store.finish(end.clone()).await.unwrap());

        let kept = get(&*store, &name).await;
        assert_eq!(
            (kept.status, kept.completion),
            (status, Some(end.completion))
        );
    }
}

/// What never began can be canceled.
pub async fn a_queued_job_is_ended_by_attempt_zero(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    assert!(store.finish(finish("a", 0, 1)).await.unwrap());

    let kept = get(&*store, "a").await;
    assert_eq!(
        (kept.status, kept.attempt, kept.started_at),
        (Status::Succeeded, 0, None)
    );
}

/// Whoever was told that a job stops was told so for good; what is over or unknown does not stop.
pub async fn a_cancel_that_was_asked_for_is_kept(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    store.begin(&ann(), &id("a"), at(1)).await.unwrap();
    let before = get(&*store, "a").await;
    assert!(store.ask_cancel(&ann(), &id("a")).await.unwrap());
    assert_eq!(
        get(&*store, "a").await,
        JobRecord {
            cancel_asked: true,
            ..before
        }
    );
    assert!(store.finish(finish("a", 1, 2)).await.unwrap());
    for name in ["a", "unknown"] {
        assert!(
            !store.ask_cancel(&ann(), &id(name)).await.unwrap(),
            "{name}"
        );
    }
}

/// Of attempts only the last one can end the job.
pub async fn an_old_attempt_has_no_say(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    for moment in [1, 2] {
        store.begin(&ann(), &id("a"), at(moment)).await.unwrap();
    }
    for attempt in [0, 1, 3] {
        assert!(
            !store.finish(finish("a", attempt, 3)).await.unwrap(),
            "attempt {attempt}"
        );
    }
    assert_eq!(get(&*store, "a").await.status, Status::Processing);
    assert!(store.finish(finish("a", 2, 3)).await.unwrap());
}

/// The first end counts; what is unknown has none.
pub async fn what_is_over_stays_as_it_is(store: Arc<dyn Store>) {
    over(&*store, "a", 1).await;
    let before = get(&*store, "a").await;
    let mut second = finish("a", 0, 2);
    second.status = Status::Failed;

    assert!(!store.finish(second).await.unwrap());
    assert!(!store.finish(finish("b", 0, 2)).await.unwrap());
    assert_eq!(get(&*store, "a").await, before);
}

/// A status that is not terminal is refused, and nothing is changed.
pub async fn only_an_end_ends_a_job(store: Arc<dyn Store>) {
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

/// Whatever people and models write.
pub async fn any_text_is_kept(store: Arc<dyn Store>) {
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

    let kept = get(&*store, job.id.as_str()).await;
    assert_eq!((kept.spec, kept.completion), (job, Some(end.completion)));
}

/// Large inputs and outputs, byte for byte.
pub async fn ten_mebibytes_are_kept(store: Arc<dyn Store>) {
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
    store.begin(&ann(), &id("a"), at(1)).await.unwrap();
    let mut end = finish("a", 1, 2);
    end.completion.output = Some(large.clone());
    end.completion.logs = "line\n".repeat(1 << 20);
    store.finish(end.clone()).await.unwrap();

    let kept = get(&*store, "a").await;
    assert!(kept.spec.input == large, "the input");
    assert!(kept.completion == Some(end.completion), "the completion");
}
