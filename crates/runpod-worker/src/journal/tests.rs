//! What the next worker finds, whatever happened to the file.

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
        .map(|left| (left.job.id, left.stage))
        .collect()
}

#[test]
fn the_next_worker_finds_what_this_one_held() {
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
    // Twice: what is found is written anew.
    for _ in 0..2 {
        assert_eq!(stages(&Journal::open(folder.path()).unwrap()), expected);
    }
}

#[test]
fn a_torn_line_costs_only_itself() {
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
fn two_workers_do_not_share_one() {
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
fn a_line_that_does_not_fit_is_made_up_for() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    journal.record_taken(&job("a"));
    journal.lock().file.as_mut().unwrap().file = full();
    journal.record_taken(&job("b"));
    journal.remove("a");
    assert!(
        matches!(Journal::open(folder.path()), Err(JournalError::InUse(_))),
        "it is still ours"
    );
    drop(journal);
    assert_eq!(
        stages(&Journal::open(folder.path()).unwrap()),
        [("b".to_owned(), JobStage::Taken { starts: 0 })]
    );
}

#[test]
fn without_room_for_a_second_file_the_first_is_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path()).unwrap();
    // Nothing can be written there.
    let taken_up = folder.path().join("jobs.next");
    std::fs::create_dir(&taken_up).unwrap();
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
        "also where it cannot be written anew"
    );
    std::fs::remove_dir(taken_up).unwrap();
    assert_eq!(stages(&Journal::open(folder.path()).unwrap()), expected);
}

#[test]
fn the_file_does_not_grow_for_ever() {
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
