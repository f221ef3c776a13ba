//! Query plans, pragmas and corrupt rows.

use rusqlite::{Connection, StatementStatus};
use tidegate_core::store::{JobRecords, Store, StoreError};

use super::super::jobs;
use super::super::list::{ANY_NEWER, ANY_OLDER, NEWER, OLDER};
use super::super::outbox_take::{FIRST_RECEIVER, NEXT_RECEIVER, UNCLAIMED};
use super::super::rows::record_of;
use super::fresh;
use crate::conformance::samples::*;

fn plan(conn: &Connection, sql: &str) -> String {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
    let lines = statement
        .raw_query()
        .mapped(|row| row.get::<_, String>(3))
        .collect::<Result<Vec<_>, _>>()
        .unwrap();
    lines.join("\n")
}

#[tokio::test]
async fn lists_use_the_index_from_their_position() {
    let (_folder, store) = fresh();
    let plans = store
        .readers
        .read(|conn| Ok([OLDER, NEWER, ANY_OLDER, ANY_NEWER].map(|sql| (sql, plan(conn, sql)))))
        .await
        .unwrap();
    for (sql, plan) in plans {
        let bounded = plan
            .contains("INDEX jobs_listed (account=? AND kind=? AND created_at>? AND created_at<?)");
        assert!(
            bounded && !plan.contains("TEMP B-TREE") && !plan.contains("SCAN"),
            "{sql}\n{plan}"
        );
    }
}

#[tokio::test]
async fn due_messages_are_found_with_the_index() {
    let (_folder, store) = fresh();
    let plans = store
        .readers
        .read(|conn| {
            Ok([FIRST_RECEIVER, NEXT_RECEIVER, UNCLAIMED].map(|sql| (sql, plan(conn, sql))))
        })
        .await
        .unwrap();
    for (sql, plan) in plans {
        assert!(
            plan.contains("INDEX letters_due") && !plan.contains("TEMP B-TREE"),
            "{sql}\n{plan}"
        );
    }
}

#[tokio::test]
async fn a_statement_is_prepared_once_for_all_values() {
    let (_folder, store) = fresh();
    let names = ["a", "b", "c"];
    for name in names {
        store.insert(spec(name)).await.unwrap();
    }
    let counts = store.lease_reader.read(move |conn| {
        for name in names {
            jobs::get(conn, &ann(), &id(name))?;
        }
        let get = conn.prepare_cached(record_of!("WHERE j.account = ? AND j.id = ?"))?;
        let count = |status| get.get_status(status);
        Ok((
            count(StatementStatus::Run),
            count(StatementStatus::RePrepare),
        ))
    });
    assert_eq!(counts.await.unwrap(), (3, 0));
}

#[tokio::test]
async fn commits_are_synced() {
    let (_folder, store) = fresh();
    let settings = store.writer.change(0, |conn| {
        let pragma = |name| conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok((
            pragma("synchronous")?,
            pragma("foreign_keys")?,
            conn.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0))?,
        ))
    });
    assert_eq!(settings.await.unwrap(), (2, 1, "wal".to_owned()));
}

#[tokio::test]
async fn a_corrupt_row_is_reported_with_its_number() {
    let (_folder, store) = fresh();
    store.insert(spec("a")).await.unwrap();
    store
        .writer
        .change(0, |conn| {
            Ok(conn.execute("UPDATE jobs SET status = 'odd'", [])?)
        })
        .await
        .unwrap();

    let read = store.get(&ann(), &id("a")).await;
    assert!(
        matches!(&read, Err(StoreError::Corrupt(what)) if what.contains("job number 1") && what.contains("odd")),
        "{read:?}"
    );
}

#[tokio::test]
async fn corrupt_rows_do_not_keep_other_open_jobs_from_being_read() {
    let (_folder, store) = fresh();
    for name in ["a", "b", "c", "d"] {
        store.insert(spec(name)).await.unwrap();
    }
    store
        .writer
        .change(0, |conn| {
            Ok(conn.execute(
                "UPDATE jobs SET context = 'odd' WHERE id IN ('a', 'b', 'd')",
                [],
            )?)
        })
        .await
        .unwrap();

    let first = store.open(0, 1).await.unwrap();
    assert_eq!(
        first
            .iter()
            .map(|job| job.record.spec.id.as_str())
            .collect::<Vec<_>>(),
        ["c"]
    );
    assert_eq!(store.open(first[0].number, 1).await.unwrap(), []);
}

#[tokio::test]
async fn a_corrupt_message_does_not_keep_others_from_being_sent() {
    let (_folder, store) = fresh();
    for name in ["a", "b"] {
        store.insert(spec(name)).await.unwrap();
        let mut end = finish(name, 0, 1);
        end.message = Some(message(&format!("msg_{name}"), name, 1));
        store.finish(end).await.unwrap();
    }
    store
        .writer
        .change(0, |conn| {
            Ok(conn.execute("UPDATE letters SET hook = 'odd' WHERE job = 'a'", [])?)
        })
        .await
        .unwrap();

    let taken = store.take_messages(all_due("one")).await.unwrap();
    assert_eq!(ids(&taken), ["msg_b"]);
}
