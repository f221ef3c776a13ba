//! The writer: many changes in one commit, and failures of one or all of them.

use std::pin::Pin;
use std::sync::mpsc;

use rusqlite::Connection;
use tidegate_core::store::{FinishOutcome, Inserted, JobRecords, Store, StoreError};

use super::super::SqliteStore;
use super::super::error::DbError;
use super::fresh;
use crate::conformance::samples::*;

type HeldWriter<'a> = Pin<Box<dyn Future<Output = Result<(), StoreError>> + 'a>>;

/// Blocks the writer until the sender is dropped, so that changes queued meanwhile are in one
/// batch.
async fn hold(store: &SqliteStore) -> (mpsc::Sender<()>, HeldWriter<'_>) {
    let (started, has_started) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let mut holding: HeldWriter<'_> = Box::pin(store.writer.change(0, move |_| {
        started.send(()).ok();
        released.recv().ok();
        Ok(())
    }));
    begin(&mut holding).await;
    has_started.recv().unwrap();
    (release, holding)
}

/// Polls a call once, so that it is sent, without waiting for its result.
async fn begin<T>(call: &mut Pin<Box<dyn Future<Output = T> + '_>>) {
    tokio::select! {
        biased;
        _ = call => panic!("no reply is possible yet"),
        () = std::future::ready(()) => {}
    }
}

fn commits(conn: &Connection) -> Result<u32, DbError> {
    Ok(conn.pragma_query_value(None, "data_version", |row| row.get(0))?)
}

#[tokio::test]
async fn queued_changes_are_committed_together() {
    let (folder, store) = fresh();
    // `data_version` of another connection counts commits.
    let watcher = Connection::open(folder.path().join("tidegate.db")).unwrap();
    let (release, holding) = hold(&store).await;
    let before = commits(&watcher).unwrap();
    let inserts = async {
        let inserts = tokio::join!(
            store.insert(spec("a")),
            store.insert(spec("b")),
            store.insert(spec("c")),
            async { drop(release) }
        );
        assert!(inserts.0.is_ok() && inserts.1.is_ok() && inserts.2.is_ok());
    };
    let (held, ()) = tokio::join!(holding, inserts);
    held.unwrap();
    assert_eq!(commits(&watcher).unwrap(), before + 1);
}

#[tokio::test]
async fn a_change_that_fails_is_rolled_back_alone() {
    let (_folder, store) = fresh();
    for name in ["a", "b"] {
        store.insert(spec(name)).await.unwrap();
    }
    let with_message = |name: &str| {
        let mut end = finish(name, 0, 1);
        end.message = Some(message("the same", name, 1));
        end
    };
    let (release, holding) = hold(&store).await;
    let (held, first, twice, other, ()) = tokio::join!(
        holding,
        store.finish(with_message("a")),
        store.finish(with_message("b")),
        store.insert(spec("c")),
        async { drop(release) }
    );
    held.unwrap();
    assert_eq!(first.unwrap(), FinishOutcome::Committed);
    assert!(matches!(twice, Err(StoreError::Invalid(_))), "{twice:?}");
    assert_eq!(other.unwrap(), Inserted::New);
    assert_eq!(
        get(&store, "b").await,
        queued(spec("b")),
        "the end without its message did not happen"
    );
}

#[tokio::test]
async fn a_failed_transaction_fails_all_of_its_changes_and_no_later_one() {
    let (_folder, store) = fresh();
    let (release, holding) = hold(&store).await;
    // What SQLite does by itself when the disk fails.
    let lost = store.writer.change(0, |conn| {
        conn.execute_batch("ROLLBACK")?;
        Err::<(), _>(DbError::Sql(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR),
            None,
        )))
    });
    let (held, before, lost, after, ()) = tokio::join!(
        holding,
        store.insert(spec("before")),
        lost,
        store.insert(spec("after")),
        async { drop(release) }
    );
    held.unwrap();
    for failed in [before.map(drop), lost, after.map(drop)] {
        assert!(
            matches!(failed, Err(StoreError::Unavailable(_))),
            "{failed:?}"
        );
    }
    for name in ["before", "after"] {
        assert_eq!(store.insert(spec(name)).await.unwrap(), Inserted::New);
    }
}

#[tokio::test]
async fn a_dropped_caller_does_not_affect_others() {
    let (_folder, store) = fresh();
    let (release, holding) = hold(&store).await;
    let mut abandoned: Pin<Box<dyn Future<Output = _>>> = Box::pin(store.insert(spec("a")));
    begin(&mut abandoned).await;
    drop(abandoned);
    let (held, other, ()) = tokio::join!(holding, store.insert(spec("b")), async { drop(release) });
    held.unwrap();
    assert_eq!(other.unwrap(), Inserted::New);
}
