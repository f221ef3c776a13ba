//! Acknowledged changes survive a kill of the process.
//!
//! This needs a process that can be killed: the tests of a backend start themselves as the child,
//! which calls [`write_until_killed`]; the parent calls [`kill_in_the_middle`], opens the store
//! again, and calls [`check`].

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use tidegate_core::Status;
use tidegate_core::outbox::MessageFilter;
use tidegate_core::store::Store;
use tokio::task::JoinSet;

use super::samples::*;

/// The prefix of acknowledgements in the output of the child; other lines come from the test
/// runner.
const MARK: &str = "acknowledged ";

/// The child: inserts and finishes jobs from several tasks, and prints every acknowledgement to
/// stdout. Does not return.
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
                end.message = Some(message(&name, &name, 0));
                store.finish(end).await.unwrap();
                report("finish", &name);
            }
        });
    }
    callers.join_all().await;
}

fn report(what: &str, name: &str) {
    // One write per line, so that lines of several tasks do not mix.
    std::io::stdout()
        .lock()
        .write_all(format!("\n{MARK}{what} {name}\n").as_bytes())
        .unwrap();
}

/// The parent: starts the child, kills it at a random time, and returns what it acknowledged.
pub fn kill_in_the_middle(mut child: Command) -> Vec<(String, String)> {
    let kill_after = 1 + RandomState::new().hash_one(0) % 300;
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
        if acknowledged.len() as u64 == kill_after {
            // Keep reading what the child wrote before its death closes the pipe.
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(
        acknowledged.len() as u64 >= kill_after,
        "the child ended by itself after {} answers",
        acknowledged.len()
    );
    acknowledged
}

/// Everything acknowledged is stored, and only finished jobs have a message.
pub async fn check(store: &dyn Store, acknowledged: &[(String, String)]) {
    let filter = MessageFilter {
        limit: usize::MAX,
        ..MessageFilter::default()
    };
    let messages = store.messages(filter).await.unwrap();
    for (what, name) in acknowledged {
        let stored = store.get(&ann(), &id(name)).await.unwrap();
        let stored =
            stored.unwrap_or_else(|| panic!("{what} of {name} was acknowledged and is lost"));
        let has_message = messages.iter().any(|message| message.id == *name);
        assert_eq!(
            stored.status == Status::Succeeded,
            has_message,
            "{name}: an end and its message come together"
        );
        assert!(
            what != "finish" || has_message,
            "the end of {name} was acknowledged and is lost"
        );
    }
}
