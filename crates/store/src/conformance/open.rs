//! Unfinished jobs, which a server resumes after a restart.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::record::{JobRecord, JobSpec};
use tidegate_core::store::Store;
use tidegate_core::{Account, Status};
use tokio::task::JoinSet;

use super::samples::*;

/// All unfinished jobs, in pages of at most `limit`.
async fn all_open(store: &dyn Store, limit: usize) -> Vec<(u64, JobRecord)> {
    let mut all: Vec<(u64, JobRecord)> = Vec::new();
    loop {
        let after = all.last().map_or(0, |(number, _)| *number);
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
    assert!(open.is_sorted_by(|(a, _), (b, _)| a < b) && open[0].0 > 0);
    assert_eq!(
        open.iter()
            .map(|(_, record)| record.spec.id.as_str())
            .collect::<Vec<_>>(),
        names
    );
    assert_eq!(open[2].1.status, Status::Processing);
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
            .map(|(_, record)| record.spec.id.as_str())
            .collect::<Vec<_>>(),
        ["a", "c"]
    );
}

/// Also after the newest job was deleted.
pub async fn numbers_are_never_reused(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    let first = all_open(&*store, 1).await[0].0;
    store.finish(finish("a", 0, 1)).await.unwrap();
    assert_eq!(store.forget(at(2), 10).await.unwrap(), 1);

    store.insert(spec("b")).await.unwrap();
    assert!(all_open(&*store, 1).await[0].0 > first);
}

/// Jobs that do not fit into one result come in several.
pub async fn large_open_jobs_are_all_returned(store: Arc<dyn Store>) {
    let large = Bytes::from(vec![b'x'; 8 << 20]);
    for n in 0..6 {
        store
            .insert(JobSpec {
                input: large.clone(),
                ..spec(&format!("{n}"))
            })
            .await
            .unwrap();
    }
    assert_eq!(all_open(&*store, 100).await.len(), 6);
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
    assert!(open.is_sorted_by(|(a, _), (b, _)| a < b));
    let ids: HashSet<_> = open
        .iter()
        .map(|(_, record)| record.spec.id.clone())
        .collect();
    assert_eq!((open.len(), ids.len()), (5000, 5000));
}
