//! Unfinished jobs, which a server resumes after a restart.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::record::JobSpec;
use tidegate_core::store::{OpenJob, Store};
use tidegate_core::{Account, Status};
use tokio::task::JoinSet;

use super::samples::*;

/// All unfinished jobs, in pages of at most `limit`.
async fn all_open(store: &dyn Store, limit: usize) -> Vec<OpenJob> {
    let mut all: Vec<OpenJob> = Vec::new();
    loop {
        let after = all.last().map_or(0, |job| job.number);
        let page = store.open(after, limit).await.unwrap();
        assert!(page.len() <= limit);
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Not by timestamp, and over all accounts.
pub async fn open_jobs_come_in_the_order_of_acceptance(store: Arc<dyn Store>) {
    let names = ["d", "b", "c", "a"];
    for (n, name) in (0..).zip(names) {
        let account = if n == 1 { Account::ANONYMOUS } else { ann() };
        store
            .insert(JobSpec {
                account,
                ..spec_at(name, -n)
            })
            .await
            .unwrap();
    }
    leased(&*store, lease("c", 0, 1)).await;

    let open = all_open(&*store, 3).await;
    assert!(open.is_sorted_by(|a, b| a.number < b.number) && open[0].number > 0);
    assert_eq!(
        open.iter()
            .map(|job| job.record.spec.id.as_str())
            .collect::<Vec<_>>(),
        names
    );
    assert_eq!(open[2].record.status, Status::Processing);
}

/// Finished jobs are not returned.
pub async fn finished_jobs_are_not_returned(store: Arc<dyn Store>) {
    for name in ["a", "b", "c"] {
        store.insert(spec(name)).await.unwrap();
    }
    store.finish(finish("b", 0, 1)).await.unwrap();

    let open = all_open(&*store, 10).await;
    assert_eq!(
        open.iter()
            .map(|job| job.record.spec.id.as_str())
            .collect::<Vec<_>>(),
        ["a", "c"]
    );
}

/// Also after the newest job was deleted.
pub async fn numbers_are_never_reused(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    let first = all_open(&*store, 1).await[0].number;
    store.finish(finish("a", 0, 1)).await.unwrap();
    assert_eq!(store.forget(at(2), 10).await.unwrap(), 1);

    store.insert(spec("b")).await.unwrap();
    assert!(all_open(&*store, 1).await[0].number > first);
}

/// Their sizes are known without their inputs.
pub async fn open_jobs_come_without_their_inputs(store: Arc<dyn Store>) {
    let sizes = [2, 8 << 20, 3000];
    for (n, size) in sizes.into_iter().enumerate() {
        let input = Bytes::from(vec![b'x'; size]);
        let spec = JobSpec {
            input,
            ..full_spec(&n.to_string())
        };
        store.insert(spec).await.unwrap();
    }
    let open = all_open(&*store, 100).await;
    assert_eq!(
        open.iter().map(|job| job.input_bytes).collect::<Vec<_>>(),
        sizes
    );
    let mut complete = get(&*store, "1").await;
    complete.spec.input = Bytes::from_static(b"{}");
    assert_eq!(open[1].record, complete);
}

/// Many concurrent inserts: no job is lost, none comes twice.
pub async fn five_thousand_jobs_are_returned_once_each(store: Arc<dyn Store>) {
    let mut callers = JoinSet::new();
    for caller in 0..50 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            for n in 0..100 {
                store.insert(spec(&format!("{caller}-{n}"))).await.unwrap();
            }
        });
    }
    callers.join_all().await;

    let open = all_open(&*store, 700).await;
    assert!(open.is_sorted_by(|a, b| a.number < b.number));
    let ids: HashSet<_> = open.iter().map(|job| job.record.spec.id.clone()).collect();
    assert_eq!((open.len(), ids.len()), (5000, 5000));
}
