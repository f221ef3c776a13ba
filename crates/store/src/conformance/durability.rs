//! What was acknowledged is there after a sudden death.
//!
//! This needs a process that can be killed: the tests of a backend run themselves again as the child, which
//! calls [`write_until_killed`]; the parent calls [`kill_in_the_middle`], opens the store again, and calls [`check`].

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tidegate_core::Status;
use tidegate_core::store::Store;
use tokio::task::JoinSet;

use super::samples::*;

/// What stands before everything that the child acknowledges; other lines are the test runner's.
const MARK: &str = "acknowledged ";

/// The child: keeps jobs and ends them, from several callers at once, and writes every answer to stdout. Does not return.
pub async fn write_until_killed(store: Arc<dyn Store>, run: &str) {
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let store = Arc::clone(&store);
        let run = run.to_owned();
        callers.spawn(async move {
            for n in 0u64.. {
                let name = format!("{run}-{caller}-{n}");
                store.insert(spec(&name)).await.unwrap();
                report("insert", &name);
                let mut end = finish(&name, 0, 1);
                end.letter = Some(letter(&name, &name, 0));
                store.finish(end).await.unwrap();
                report("finish", &name);
            }
        });
    }
    callers.join_all().await;
}

fn report(what: &str, name: &str) {
    // One write per line, so that lines of several callers do not mix.
    std::io::stdout()
        .lock()
        .write_all(format!("\n{MARK}{what} {name}\n").as_bytes())
        .unwrap();
}

/// The parent: starts the child, kills it at a random moment, and returns what it had acknowledged.
pub fn kill_in_the_middle(mut child: Command) -> Vec<(String, String)> {
    let wanted = 1 + RandomState::new().hash_one(0) % 300;
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((what, name)) = line
            .strip_prefix(MARK)
            .and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        acknowledged.push((what.to_owned(), name.to_owned()));
        if acknowledged.len() as u64 == wanted {
            // From here on we read what it still managed to say, until the pipe is closed by its death.
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(
        acknowledged.len() as u64 >= wanted,
        "the child ended by itself after {} answers",
        acknowledged.len()
    );
    acknowledged
}

/// All that was acknowledged is there, and letters only with ended jobs.
pub async fn check(store: &dyn Store, acknowledged: &[(String, String)]) {
    let letters = store.pending_messages(0, usize::MAX).await.unwrap();
    for (what, name) in acknowledged {
        let kept = store.get(&ann(), &id(name)).await.unwrap();
        let kept = kept.unwrap_or_else(|| panic!("{what} of {name} was acknowledged and is lost"));
        let has_letter = letters.iter().any(|(_, letter)| letter.id == *name);
        assert_eq!(
            kept.status == Status::Succeeded,
            has_letter,
            "{name}: an end and its letter come together"
        );
        assert!(
            what != "finish" || has_letter,
            "the end of {name} was acknowledged and is lost"
        );
    }
}
