//! Lists and their pages.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::record::{JobRecord, JobSpec};
use tidegate_core::store::{Cursor, JobFilter, JobQuery, Page, Store};
use tidegate_core::{Account, JobKind, Status};

use super::samples::*;

/// Inserts Ann's predictions `00`, `01`, …, each created after the one before.
async fn fill(store: &dyn Store, n: i64) {
    for n in 0..n {
        store.insert(spec_at(&format!("{n:02}"), n)).await.unwrap();
    }
}

async fn page(store: &dyn Store, from: Option<Cursor>, limit: usize) -> Page<JobRecord> {
    store
        .list(JobQuery {
            from,
            ..query(limit)
        })
        .await
        .unwrap()
}

/// The names of `00`, `01`, … from `newest` down to `oldest`.
fn down(newest: i64, oldest: i64) -> Vec<String> {
    (oldest..=newest).rev().map(|n| format!("{n:02}")).collect()
}

/// Sorted by creation time, then by order of acceptance.
pub async fn newest_come_first(store: Arc<dyn Store>) {
    for (name, micros) in [("b", 5), ("a", 9), ("c", 5), ("d", 1)] {
        store.insert(spec_at(name, micros)).await.unwrap();
    }
    store.finish(finish("c", 0, 20)).await.unwrap();

    let page = page(&*store, None, 10).await;
    assert_eq!(names(&page.items), ["a", "c", "b", "d"]);
    assert_eq!(page.items[1].completion, Some(completion(20)));
    assert_eq!((page.next, page.previous), (None, None));
}

/// Jobs of other accounts are not listed.
pub async fn lists_are_by_account_and_kind(store: Arc<dyn Store>) {
    store.insert(spec("mine")).await.unwrap();
    store
        .insert(JobSpec {
            kind: JobKind::Training,
            ..spec("training")
        })
        .await
        .unwrap();
    store
        .insert(JobSpec {
            account: Account::ANONYMOUS,
            ..spec("anonymous")
        })
        .await
        .unwrap();

    let list = async |account, kind| {
        store
            .list(JobQuery {
                account,
                kind,
                ..query(10)
            })
            .await
            .unwrap()
            .items
    };
    assert_eq!(names(&list(ann(), JobKind::Prediction).await), ["mine"]);
    assert_eq!(names(&list(ann(), JobKind::Training).await), ["training"]);
    assert_eq!(
        names(&list(Account::ANONYMOUS, JobKind::Prediction).await),
        ["anonymous"]
    );
    assert!(
        list(Account::parse("bob").unwrap(), JobKind::Prediction)
            .await
            .is_empty()
    );
}

/// `created_after` is inclusive, `created_before` is exclusive.
pub async fn bounds_are_from_and_before(store: Arc<dyn Store>) {
    fill(&*store, 10).await;
    let list = async |after: Option<i64>, before: Option<i64>| {
        let query = JobQuery {
            created_after: after.map(at),
            created_before: before.map(at),
            ..query(100)
        };
        store.list(query).await.unwrap()
    };
    assert_eq!(names(&list(Some(3), Some(6)).await.items), down(5, 3));
    assert_eq!(names(&list(Some(8), None).await.items), down(9, 8));
    assert_eq!(names(&list(None, Some(2)).await.items), down(1, 0));
    assert!(list(Some(6), Some(3)).await.items.is_empty());
    let bounded = list(Some(3), Some(6)).await;
    assert_eq!(
        (bounded.next, bounded.previous),
        (None, None),
        "what is outside of the bounds is no neighbour"
    );
}

/// To the last page and back, over the same pages.
pub async fn pages_lead_forward_and_back(store: Arc<dyn Store>) {
    fill(&*store, 25).await;
    let top = page(&*store, None, 10).await;
    let middle = page(&*store, top.next.clone(), 10).await;
    let last = page(&*store, middle.next.clone(), 10).await;
    assert_eq!(
        [names(&top.items), names(&middle.items), names(&last.items)],
        [down(24, 15), down(14, 5), down(4, 0)]
    );
    assert_eq!((&top.previous, &last.next), (&None, &None));

    let back = page(&*store, last.previous, 10).await;
    assert_eq!(back, middle);
    assert_eq!(page(&*store, back.previous, 10).await, top);
}

/// Also if the clock went back, and if many jobs have the same timestamp.
pub async fn pages_are_stable_in_any_order_of_timestamps(store: Arc<dyn Store>) {
    for n in 0..30 {
        store
            .insert(spec_at(&format!("{n:02}"), n * 7 % 10))
            .await
            .unwrap();
    }
    let whole = page(&*store, None, 100).await.items;
    assert!(whole.is_sorted_by_key(|record| std::cmp::Reverse(record.spec.created_at)));
    let mut now = page(&*store, None, 4).await;
    let mut seen = now.items.clone();
    while let Some(next) = now.next {
        now = page(&*store, Some(next), 4).await;
        seen.extend(now.items.clone());
    }
    assert_eq!(names(&seen), names(&whole));

    let mut back = now.items;
    while let Some(previous) = now.previous {
        now = page(&*store, Some(previous), 4).await;
        back.splice(0..0, now.items);
    }
    assert_eq!(names(&back), names(&whole));
}

/// No link leads to an empty page.
pub async fn a_full_last_page_has_no_next(store: Arc<dyn Store>) {
    fill(&*store, 20).await;
    let top = page(&*store, None, 10).await;
    let last = page(&*store, top.next, 10).await;
    assert_eq!(
        (names(&last.items), last.next),
        (down(9, 0).iter().map(String::as_str).collect(), None)
    );
}

/// Going to older pages shows every job once; going to newer pages finds the new jobs.
pub async fn new_jobs_do_not_move_the_pages(store: Arc<dyn Store>) {
    fill(&*store, 10).await;
    let mut seen = Vec::new();
    let mut now = page(&*store, None, 3).await;
    for n in 10.. {
        seen.extend(names(&now.items).into_iter().map(str::to_owned));
        store.insert(spec_at(&format!("{n:02}"), n)).await.unwrap();
        let Some(next) = now.next else { break };
        now = page(&*store, Some(next), 3).await;
    }
    assert_eq!(seen, down(9, 0));

    while let Some(previous) = now.previous {
        now = page(&*store, Some(previous), 3).await;
    }
    assert_eq!(
        names(&now.items)[0],
        names(&page(&*store, None, 1).await.items)[0]
    );
}

/// A cursor stays valid when the jobs around it are deleted.
pub async fn a_cursor_outlives_its_job(store: Arc<dyn Store>) {
    fill(&*store, 6).await;
    let top = page(&*store, None, 3).await;
    store.finish(finish("03", 0, 1)).await.unwrap();
    assert_eq!(store.forget(at(2), 10).await.unwrap(), 1);

    let rest = page(&*store, top.next, 3).await;
    assert_eq!(names(&rest.items), down(2, 0));
    assert_eq!(
        names(&page(&*store, rest.previous, 3).await.items),
        down(5, 4)
    );
}

/// Pages with bounds end at the bounds, in both directions.
pub async fn bounds_hold_on_every_page(store: Arc<dyn Store>) {
    fill(&*store, 20).await;
    let bounded = JobQuery {
        created_after: Some(at(5)),
        created_before: Some(at(15)),
        ..query(4)
    };
    let list = async |from| {
        store
            .list(JobQuery {
                from,
                ..bounded.clone()
            })
            .await
            .unwrap()
    };
    let top = list(None).await;
    let middle = list(top.next.clone()).await;
    let last = list(middle.next.clone()).await;
    assert_eq!(
        [names(&top.items), names(&middle.items), names(&last.items)],
        [down(14, 11), down(10, 7), down(6, 5)]
    );
    assert_eq!((&top.previous, &last.next), (&None, &None));
    assert_eq!(list(last.previous).await, middle);
    assert_eq!(list(middle.previous).await, top);
}

/// A cursor that a client made up gives an empty page.
pub async fn an_invalid_cursor_gives_an_empty_page(store: Arc<dyn Store>) {
    fill(&*store, 3).await;
    for text in [
        "",
        "1",
        "garbage",
        "AAAAAAAAAAAAAAAAAAAAAAA",
        "' OR 1=1 --",
        "\u{0}🦀",
        &"A".repeat(10_000),
    ] {
        let page = page(&*store, Some(Cursor(text.to_owned())), 10).await;
        assert_eq!(
            page,
            Page {
                items: Vec::new(),
                next: None,
                previous: None
            },
            "{text:?}"
        );
    }
}

/// From 0 to the maximum.
pub async fn any_limit_is_valid(store: Arc<dyn Store>) {
    fill(&*store, 3).await;
    assert_eq!(
        page(&*store, None, 0).await,
        Page {
            items: Vec::new(),
            next: None,
            previous: None
        }
    );
    assert_eq!(
        names(&page(&*store, None, usize::MAX).await.items),
        down(2, 0)
    );
}

/// A page is never much larger than one job, and `next` leads through all pages.
pub async fn large_jobs_make_short_pages(store: Arc<dyn Store>) {
    let large = Bytes::from(vec![b'x'; 8 << 20]);
    for n in 0..6 {
        store
            .insert(JobSpec {
                input: large.clone(),
                ..spec_at(&format!("{n:02}"), n)
            })
            .await
            .unwrap();
    }
    let mut now = page(&*store, None, 100).await;
    let mut seen: Vec<_> = names(&now.items).into_iter().map(str::to_owned).collect();
    while let Some(next) = now.next {
        now = page(&*store, Some(next), 100).await;
        seen.extend(names(&now.items).into_iter().map(str::to_owned));
    }
    assert_eq!(seen, down(5, 0));
}

/// The last accepted job first, filtered by account, id, model and status.
pub async fn summaries_of_recent_jobs_of_all_accounts(store: Arc<dyn Store>) {
    store.insert(spec("a")).await.unwrap();
    store
        .insert(JobSpec {
            account: Account::ANONYMOUS,
            ..full_spec("b")
        })
        .await
        .unwrap();
    leased(&*store, lease("a", 0, 1)).await;
    store.insert(spec("c")).await.unwrap();
    assert!(ends(&*store, finish("c", 0, 7)).await);

    let all = store
        .recent(JobFilter {
            limit: 10,
            ..JobFilter::default()
        })
        .await
        .unwrap();
    assert_eq!(
        all.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(),
        ["c", "b", "a"]
    );
    assert_eq!(
        (all[0].completed_at, all[0].status),
        (Some(at(7)), Status::Succeeded)
    );
    assert_eq!(
        (all[2].started_at, all[2].status),
        (Some(at(1)), Status::Processing)
    );
    assert_eq!(all[1].target, full_spec("b").target);
    assert_eq!(
        store
            .recent(JobFilter {
                limit: 1,
                ..JobFilter::default()
            })
            .await
            .unwrap(),
        all[..1]
    );
    let before = all[1].created_at - Duration::from_micros(1);
    for (filter, expected) in [
        (
            JobFilter {
                account: Some(Account::ANONYMOUS),
                ..JobFilter::default()
            },
            &all[1..2],
        ),
        (
            JobFilter {
                id: Some(id("a")),
                ..JobFilter::default()
            },
            &all[2..],
        ),
        (
            JobFilter {
                id_prefix: Some("a".to_owned()),
                ..JobFilter::default()
            },
            &all[2..],
        ),
        (
            JobFilter {
                id_prefix: Some("ab".to_owned()),
                ..JobFilter::default()
            },
            &all[..0],
        ),
        (
            JobFilter {
                deployment: full_spec("b")
                    .target
                    .deployment
                    .map(|named| named.deployment),
                ..JobFilter::default()
            },
            &all[1..2],
        ),
        (
            JobFilter {
                deployment: Some("ann".to_owned()),
                ..JobFilter::default()
            },
            &all[..0],
        ),
        (
            JobFilter {
                model: Some("ann/other".to_owned()),
                ..JobFilter::default()
            },
            &all[..0],
        ),
        (
            JobFilter {
                statuses: vec![Status::Queued, Status::Processing],
                ..JobFilter::default()
            },
            &all[1..],
        ),
        (
            JobFilter {
                created_until: Some(all[1].created_at),
                ..JobFilter::default()
            },
            &all[1..2],
        ),
        (
            JobFilter {
                created_until: Some(before),
                ..JobFilter::default()
            },
            &all[..0],
        ),
        (
            JobFilter {
                statuses: vec![Status::Processing],
                created_until: Some(all[0].created_at),
                ..JobFilter::default()
            },
            &all[2..],
        ),
    ] {
        assert_eq!(
            store
                .recent(JobFilter {
                    limit: 10,
                    ..filter.clone()
                })
                .await
                .unwrap(),
            expected,
            "{filter:?}"
        );
        assert!(all.iter().filter(|job| filter.matches(*job)).eq(expected));
    }
}
