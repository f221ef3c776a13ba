//! The jobs of a model that directors have begun.

use std::sync::Arc;

use jiff::{Timestamp, ToSpan};
use tidegate_core::record::{Completion, JobSpec, Target};
use tidegate_core::store::JobFinish;

use super::cluster_leases::{LeasingStore, granted, held, request};
use super::samples::*;

/// The jobs that the store finds: their names and the numbers of their attempts, in order.
async fn begun(store: &dyn LeasingStore, since: Option<Timestamp>) -> Vec<(String, u32)> {
    let found = store.begun("ann/echo", since).await.unwrap();
    let jobs = found.jobs.into_iter();
    let mut begun: Vec<_> = jobs
        .map(|found| (found.job.id.to_string(), found.attempt))
        .collect();
    begun.sort();
    begun
}

/// Each attempt that began after a time is found, whether it runs or has ended.
pub async fn attempts_that_have_begun_are_found(store: Arc<dyn LeasingStore>) {
    let other = Target {
        model: "ann/other".to_owned(),
        ..spec("other").target
    };
    store
        .insert(JobSpec {
            target: other,
            ..spec("other")
        })
        .await
        .unwrap();
    for name in ["early", "ended", "runs", "given-back", "waits"] {
        store.insert(spec(name)).await.unwrap();
    }
    granted(&*store, request("early", "one", 1)).await;
    let since = store.begun("ann/echo", None).await.unwrap().at;
    for name in ["other", "runs"] {
        granted(&*store, request(name, "one", 2)).await;
    }
    let lease = granted(&*store, request("given-back", "one", 3)).await;
    let released = store.release(&held("given-back", lease.fence)).await;
    assert!(released.unwrap());
    let lease = granted(&*store, request("ended", "one", 4)).await;
    // The clock of the director is behind.
    let completed_at = lease.record.started_at.unwrap() - 5.seconds();
    let ended = finish_leased("ended", lease.fence, 0);
    let ended = JobFinish {
        completion: Completion {
            completed_at,
            ..ended.completion
        },
        began_at: lease.record.started_at,
        ..ended
    };
    assert!(ends(&*store, ended).await);

    let name = |name: &str| (name.to_owned(), 1);
    assert_eq!(begun(&*store, None).await, [name("early"), name("runs")]);
    let found = begun(&*store, Some(since)).await;
    assert_eq!(found, [name("ended"), name("runs")]);
    let later = store.begun("ann/echo", None).await.unwrap().at;
    assert_eq!(begun(&*store, Some(later)).await, []);
}
