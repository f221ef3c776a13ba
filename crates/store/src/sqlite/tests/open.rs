//! Opening: files and permissions, and the errors.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;
use tidegate_core::chain;
use tidegate_core::outbox::OutboxMessage;
use tidegate_core::store::{JobRecords, Store};

use super::super::schema::{STEPS, migrate, migrate_by};
use super::super::{SqliteOptions, SqliteStore, StoreOpenError};
use super::fresh;
use crate::conformance::samples::*;

fn open(folder: &Path) -> Result<SqliteStore, StoreOpenError> {
    SqliteStore::open(folder, &SqliteOptions::default())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn files_are_private() {
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("new/data");
    let store = open(&folder).unwrap();
    store.insert(spec("a")).await.unwrap();

    assert_eq!(mode(&folder), 0o700);
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn permissions_of_an_existing_file_are_restricted() {
    let (folder, store) = fresh();
    drop(store);
    let file = folder.path().join("tidegate.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();

    let _store = open(folder.path()).unwrap();
    assert_eq!(mode(&file), 0o600);
}

#[test]
fn a_second_server_gets_the_process_that_uses_the_folder() {
    let (folder, store) = fresh();
    let refused = open(folder.path()).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains(&format!("process {}", std::process::id())),
        "{refused}"
    );

    drop(store);
    open(folder.path()).expect("the folder is free again");
}

#[tokio::test]
async fn data_is_there_after_reopening() {
    let (folder, store) = fresh();
    store.insert(full_spec("a")).await.unwrap();
    drop(store);
    assert!(
        !folder.path().join("tidegate.db-wal").exists(),
        "closing empties the log"
    );

    assert_eq!(
        get(&open(folder.path()).unwrap(), "a").await,
        queued(full_spec("a"))
    );
}

#[tokio::test]
async fn claims_of_the_previous_process_end() {
    let (folder, store) = fresh();
    store.insert(spec("a")).await.unwrap();
    let mut end = finish("a", 0, 1);
    end.message = Some(OutboxMessage {
        claim: Some(claim("the previous process")),
        ..message("msg_1", "a", 1)
    });
    store.finish(end).await.unwrap();
    drop(store);

    let store = open(folder.path()).unwrap();
    let taken = store.take_messages(all_due("this process")).await.unwrap();
    assert_eq!(ids(&taken), ["msg_1"]);
}

#[test]
fn receivers_of_older_messages_are_read_from_their_webhooks() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("tidegate.db");
    let mut conn = Connection::open(&file).unwrap();
    migrate_by(&STEPS[..5], &mut conn, &file).unwrap();
    let hooks = [
        (
            r#"{"url":"https://example.com/a/b?c=//d@e"}"#,
            "example.com",
        ),
        (r#"{"url":"http://me:secret@[::1]:8080/"}"#, "[::1]:8080"),
        (r#"{"url":"http://example.com"}"#, "example.com"),
        ("{}", ""),
        ("nonsense", ""),
    ];
    for (number, (hook, _)) in hooks.iter().enumerate() {
        let sql = "INSERT INTO letters (id, account, job, hook, created_at, attempts, next_at) VALUES (?, '', 'a', ?, 0, 0, 0)";
        conn.execute(sql, (number.to_string(), hook)).unwrap();
    }

    migrate(&mut conn, &file).unwrap();

    let mut statement = conn
        .prepare("SELECT receiver FROM letters ORDER BY number")
        .unwrap();
    let receivers: Vec<String> = statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(receivers, hooks.map(|(_, receiver)| receiver));
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let parent = TempDir::new().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    // Not even root can create files in /sys.
    for folder in [
        &file,
        &file.join("below"),
        Path::new("/sys"),
        Path::new("/sys/data"),
    ] {
        let refused = open(folder).unwrap_err();
        assert!(
            matches!(&refused, StoreOpenError::Folder { folder: named, .. } if named == folder),
            "{}",
            chain(&refused)
        );
    }
}

#[test]
fn a_foreign_file_is_not_changed() {
    let garbage = TempDir::new().unwrap();
    let file = garbage.path().join("tidegate.db");
    fs::write(&file, "garbage ".repeat(1000)).unwrap();
    assert!(matches!(
        open(garbage.path()),
        Err(StoreOpenError::Foreign { .. })
    ));
    assert_eq!(fs::read_to_string(&file).unwrap(), "garbage ".repeat(1000));

    let foreign = TempDir::new().unwrap();
    let file = foreign.path().join("tidegate.db");
    Connection::open(&file)
        .unwrap()
        .execute_batch("CREATE TABLE mine (a); INSERT INTO mine VALUES (1)")
        .unwrap();
    assert!(matches!(
        open(foreign.path()),
        Err(StoreOpenError::Foreign { .. })
    ));
    let value: u32 = Connection::open(&file)
        .unwrap()
        .query_row("SELECT a FROM mine", [], |row| row.get(0))
        .unwrap();
    assert_eq!(value, 1);
}

#[test]
fn a_newer_layout_is_refused_with_both_numbers() {
    let (folder, store) = fresh();
    drop(store);
    Connection::open(folder.path().join("tidegate.db"))
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();

    let refused = open(folder.path()).unwrap_err().to_string();
    assert!(
        refused.contains("layout 99") && refused.contains("up to 8"),
        "{refused}"
    );
}

#[test]
fn a_failed_migration_leaves_the_layout_before_it() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("db");
    let mut conn = Connection::open(&file).unwrap();
    let steps = [
        "CREATE TABLE one (a)",
        "CREATE TABLE two (a); INSERT INTO one VALUES (1)",
        "CREATE TABLE three (a); nonsense",
    ];

    let failed = migrate_by(&steps, &mut conn, &file).unwrap_err();

    assert_eq!(
        failed.to_string(),
        format!(
            "cannot migrate the database `{}` from layout 2 to 3; it is unchanged",
            file.display()
        )
    );
    let version: u32 = conn
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    let three: bool = conn
        .prepare("SELECT 1 FROM sqlite_schema WHERE name = 'three'")
        .unwrap()
        .exists([])
        .unwrap();
    assert_eq!((version, three), (2, false));
}

#[test]
fn migrations_run_once() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("db");
    let mut conn = Connection::open(&file).unwrap();
    let steps = ["CREATE TABLE one (a)", "INSERT INTO one VALUES (1)"];
    migrate_by(&steps[..1], &mut conn, &file).unwrap();
    migrate_by(&steps, &mut conn, &file).unwrap();
    migrate_by(&steps, &mut conn, &file).unwrap();
    let rows: u32 = conn
        .query_row("SELECT count(*) FROM one", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 1);
}

#[test]
fn a_full_disk_during_migration_is_reported_as_full() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("db");
    let mut conn = Connection::open(&file).unwrap();
    conn.pragma_update_and_check(None, "max_page_count", 3, |_| Ok(()))
        .unwrap();

    assert!(matches!(
        migrate(&mut conn, &file),
        Err(StoreOpenError::Full { .. })
    ));
}
