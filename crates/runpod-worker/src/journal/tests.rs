//! What the next worker process reads, also after failed writes.

use super::*;

fn job(id: &str) -> Job {
    Job {
        id: id.to_owned(),
        json: format!("{{\"id\":\"{id}\",\n\"input\":{{}}}}").into(),
    }
}

fn stages(journal: &Journal) -> Vec<(String, JobStage)> {
    journal
        .jobs()
        .into_iter()
        .map(|entry| (entry.job.id, entry.stage))
        .collect()
}

#[test]
fn the_next_worker_reads_the_jobs_of_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    for id in ["a", "b", "c", "d", "e"] {
        journal.record_taken(&job(id));
    }
    journal.record_started("b");
    journal.record_started("c");
    journal.record_finished(
        "c",
        OutputDelivery::WithResult,
        &Bytes::from_static(b"{\"output\":1}"),
    );
    journal.record_finished("d", OutputDelivery::WithResult, &Bytes::from_static(b"{}"));
    journal.remove("d");
    journal.record_streaming("e");
    drop(journal);
    let expected = [
        ("a".to_owned(), JobStage::Taken { starts: 0 }),
        ("b".to_owned(), JobStage::Taken { starts: 1 }),
        (
            "c".to_owned(),
            JobStage::Finished {
                delivered: OutputDelivery::WithResult,
                body: "{\"output\":1}".into(),
            },
        ),
        ("e".to_owned(), JobStage::Streaming),
    ];
    // Twice: opening rewrites the file.
    for _ in 0..2 {
        assert_eq!(stages(&Journal::open(folder.path()).unwrap()), expected);
    }
}

#[test]
fn an_incomplete_line_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    journal.record_taken(&job("a"));
    drop(journal);
    let path = folder.path().join("jobs.jsonl");
    let mut text = std::fs::read(&path).unwrap();
    text.extend_from_slice(b"{\"taken\":{\"id\":\"b\",\"jo");
    std::fs::write(&path, text).unwrap();
    assert_eq!(
        stages(&Journal::open(folder.path()).unwrap()),
        [("a".to_owned(), JobStage::Taken { starts: 0 })]
    );
}

#[test]
fn two_workers_cannot_share_a_journal() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Journal::open(folder.path()).unwrap();
    assert!(matches!(
        Journal::open(folder.path()),
        Err(JournalError::InUse(_))
    ));
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn a_failed_write_is_repeated_with_the_next_event() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    journal.record_taken(&job("a"));
    journal.lock().file.as_mut().unwrap().file = full();
    journal.record_taken(&job("b"));
    journal.remove("a");
    assert!(
        matches!(Journal::open(folder.path()), Err(JournalError::InUse(_))),
        "the journal is still locked"
    );
    drop(journal);
    assert_eq!(
        stages(&Journal::open(folder.path()).unwrap()),
        [("b".to_owned(), JobStage::Taken { starts: 0 })]
    );
}

#[test]
fn without_space_for_a_second_file_the_first_is_rewritten_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    // A folder at this path makes the write fail.
    let blocked = folder.path().join("jobs.next");
    std::fs::create_dir(&blocked).unwrap();
    for id in ["a", "b", "c"] {
        journal.record_taken(&job(id));
    }
    let good = std::mem::replace(&mut journal.lock().file.as_mut().unwrap().file, full());
    journal.remove("a");
    journal.lock().file.as_mut().unwrap().file = good;
    journal.remove("b");
    journal.record_started("c");
    drop(journal);
    let expected = [("c".to_owned(), JobStage::Taken { starts: 1 })];
    assert_eq!(
        stages(&Journal::open(folder.path()).unwrap()),
        expected,
        "also when the file cannot be rewritten"
    );
    std::fs::remove_dir(blocked).unwrap();
    assert_eq!(stages(&Journal::open(folder.path()).unwrap()), expected);
}

#[test]
fn the_file_is_compacted() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    let large = Bytes::from(format!("\"{}\"", "x".repeat(100_000)));
    for i in 0..40 {
        journal.record_taken(&job(&i.to_string()));
        journal.record_finished(&i.to_string(), OutputDelivery::WithResult, &large);
        journal.remove(&i.to_string());
    }
    assert!(
        std::fs::metadata(folder.path().join("jobs.jsonl"))
            .unwrap()
            .len()
            < 2 * COMPACT_ABOVE
    );
}

#[test]
fn the_keys_of_entries_on_disk_are_stable() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    journal.record_taken(&job("a"));
    journal.record_started("a");
    journal.record_streaming("a");
    journal.record_finished(
        "a",
        OutputDelivery::Streamed,
        &Bytes::from_static(b"{\"output\":1}"),
    );
    journal.remove("a");
    let text = std::fs::read_to_string(folder.path().join("jobs.jsonl")).unwrap();
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            r#"{"taken":{"id":"a","job":{"id":"a", "input":{}}}}"#,
            r#"{"begun":{"id":"a"}}"#,
            r#"{"parted":{"id":"a"}}"#,
            r#"{"over":{"id":"a","in_parts":true,"body":{"output":1}}}"#,
            r#"{"gone":{"id":"a"}}"#,
        ]
    );
}
