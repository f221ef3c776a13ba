//! Concurrent calls have one outcome.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::Status;
use tidegate_core::lease::{LeaseDurability, LeaseRequest, LeaseResult};
use tidegate_core::outbox::MessageFilter;
use tidegate_core::record::JobSpec;
use tidegate_core::store::{Documents, Inserted, Store};
use tokio::task::JoinSet;

use super::samples::*;

/// The other callers get the record of the first.
pub async fn one_id_from_many_callers_is_new_once(store: Arc<dyn Store>) {
    for round in 0..20 {
        let mut callers = JoinSet::new();
        for n in 0..16 {
            let store = Arc::clone(&store);
            let spec = JobSpec {
                input: format!("{n}").into(),
                ..spec(&format!("{round}"))
            };
            callers.spawn(async move { store.insert(spec).await.unwrap() });
        }
        let answers = callers.join_all().await;
        let stored = get(&*store, &format!("{round}")).await;
        let new = answers
            .iter()
            .filter(|answer| **answer == Inserted::New)
            .count();
        let known = answers
            .iter()
            .filter(|answer| **answer == Inserted::Known(Box::new(stored.clone())))
            .count();
        assert_eq!((new, known), (1, 15));
    }
}

/// Completion, status and message are of the same caller.
pub async fn one_of_many_ends_succeeds(store: Arc<dyn Store>) {
    for round in 0..20 {
        let name = format!("{round}");
        store.insert(spec(&name)).await.unwrap();
        let mut callers = JoinSet::new();
        for n in 0..8 {
            let store = Arc::clone(&store);
            let mut end = finish(&name, 0, n);
            end.status = if n % 2 == 0 {
                Status::Succeeded
            } else {
                Status::Canceled
            };
            end.message = Some(message(&format!("{round}-{n}"), &name, 0));
            callers.spawn(async move { ends(&*store, end).await.then_some(n) });
        }
        let winners: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
        let [winner] = winners[..] else {
            panic!("{winners:?} won")
        };
        let stored = get(&*store, &name).await;
        assert_eq!(stored.completion, Some(completion(winner)));
        assert_eq!(stored.status == Status::Canceled, winner % 2 == 1);
        let about_it = MessageFilter {
            job: Some(id(&name)),
            limit: 1000,
            ..MessageFilter::default()
        };
        let messages = store.messages(about_it).await.unwrap();
        let about: Vec<_> = messages.iter().map(|message| message.id.as_str()).collect();
        assert_eq!(about, [format!("{round}-{winner}")]);
    }
}

/// Exactly one of both succeeds.
pub async fn a_job_begins_or_is_canceled(store: Arc<dyn Store>) {
    for round in 0..50 {
        let name = format!("{round}");
        store.insert(spec(&name)).await.unwrap();
        let mut callers = JoinSet::new();
        let (beginner, canceler, job) = (Arc::clone(&store), Arc::clone(&store), id(&name));
        let request = LeaseRequest {
            id: job,
            ..lease(&name, 0, 1)
        };
        callers.spawn(async move {
            let result = beginner.lease(request).await.unwrap();
            matches!(result, LeaseResult::Granted(_))
        });
        let end = finish(&name, 0, 1);
        callers.spawn(async move { ends(&*canceler, end).await });
        assert_eq!(
            callers
                .join_all()
                .await
                .into_iter()
                .filter(|won| *won)
                .count(),
            1
        );
    }
}

/// Whatever the durability.
pub async fn one_of_many_leases_is_granted(store: Arc<dyn Store>) {
    for round in 0..20 {
        let name = format!("{round}");
        store.insert(spec(&name)).await.unwrap();
        let mut callers = JoinSet::new();
        for n in 0..8 {
            let store = Arc::clone(&store);
            let durability = match n % 2 {
                0 => LeaseDurability::Process,
                _ => LeaseDurability::Machine,
            };
            let request = LeaseRequest {
                durability,
                ..lease(&name, 0, n)
            };
            callers.spawn(async move { store.lease(request).await.unwrap() });
        }
        let results = callers.join_all().await;
        let granted = results
            .iter()
            .filter(|result| matches!(result, LeaseResult::Granted(_)))
            .count();
        let refused = results
            .iter()
            .filter(|result| **result == LeaseResult::HeldByAnother)
            .count();
        assert_eq!((granted, refused), (1, 7), "{results:?}");
    }
}

/// By every reader, immediately, while others write.
pub async fn acknowledged_changes_are_visible(store: Arc<dyn Store>) {
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            for n in 0..25 {
                let name = format!("{caller}-{n}");
                store.insert(spec(&name)).await.unwrap();
                assert_eq!(get(&*store, &name).await.status, Status::Queued);
                let fence = leased(&*store, lease(&name, 0, 1)).await;
                assert_eq!(get(&*store, &name).await.attempt, 1);
                store.finish(finish_leased(&name, fence, 2)).await.unwrap();
                assert_eq!(get(&*store, &name).await.status, Status::Succeeded);
            }
        });
    }
    callers.join_all().await;
}

/// All learn which.
pub async fn one_of_many_new_documents_is_stored(documents: Arc<dyn Documents>) {
    let mut callers = JoinSet::new();
    for n in 0..16 {
        let documents = Arc::clone(&documents);
        callers.spawn(async move {
            documents
                .put_new("namespace", "name", Bytes::from(format!("{n}")))
                .await
                .unwrap()
        });
    }
    let answers = callers.join_all().await;
    let stored = documents.fetch("namespace", "name").await.unwrap().unwrap();
    assert!(answers.iter().all(|answer| *answer == stored));
}

/// Every one of many concurrent read-change-swap cycles has an effect.
pub async fn no_change_of_a_document_is_lost(documents: Arc<dyn Documents>) {
    documents
        .put("namespace", "name", Bytes::from_static(b"0"))
        .await
        .unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let documents = Arc::clone(&documents);
        callers.spawn(async move {
            loop {
                let was = documents.fetch("namespace", "name").await.unwrap().unwrap();
                let number: u32 = std::str::from_utf8(&was).unwrap().parse().unwrap();
                if documents
                    .swap(
                        "namespace",
                        "name",
                        &was,
                        Bytes::from(format!("{}", number + 1)),
                    )
                    .await
                    .unwrap()
                {
                    return;
                }
            }
        });
    }
    callers.join_all().await;
    assert_eq!(
        documents.fetch("namespace", "name").await.unwrap().unwrap(),
        "16"
    );
}
