//! A short run of a target: every input of its corpus, and some thousand generated from them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::mutate::mutate;
use crate::random::Random;

/// The folder of the corpora: one folder per target.
const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus");
/// The number of generated inputs. All short runs together take a few seconds.
const GENERATED: usize = 3000;

/// Runs `target` with the corpus `name` and with inputs generated from it, which are the same in every
/// run.
///
/// # Panics
///
/// When the target panics; the message then contains the input.
pub fn short_run(name: &str, target: fn(&[u8])) {
    let corpus = read_corpus(name);
    for (file, input) in &corpus {
        attempt(target, input, &format!("with fuzz/corpus/{name}/{file}"));
    }
    let mut random = Random::new(1);
    for number in 0..GENERATED {
        let mut input = corpus[number % corpus.len()].1.clone();
        let other = &corpus[random.below(corpus.len())].1;
        mutate(&mut random, &mut input, other);
        attempt(target, &input, &format!("with generated input {number}"));
    }
}

fn read_corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(CORPUS).join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| {
        panic!("failed to read the corpus `{}`: {error}", folder.display())
    });
    let mut corpus: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("a folder can be listed").path();
            let file = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            (file, std::fs::read(&path).expect("an input can be read"))
        })
        .collect();
    // The order of a directory listing depends on the system.
    corpus.sort();
    assert!(!corpus.is_empty(), "`{}` is empty", folder.display());
    corpus
}

fn attempt(target: fn(&[u8]), input: &[u8], which: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        panic!(
            "{}, {which}: b\"{}\"",
            text.unwrap_or("a panic"),
            input.escape_ascii()
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    #[should_panic(expected = "too long, with generated input")]
    fn a_target_that_fails_shows_the_input() {
        short_run("units", |input| assert!(input.len() < 100, "too long"));
    }

    #[test]
    #[should_panic(expected = "with fuzz/corpus/units/")]
    fn a_failing_corpus_input_is_named() {
        short_run("units", |input| assert!(input.is_empty()));
    }

    #[test]
    fn the_long_runs_have_the_same_targets() {
        let program = std::fs::read_to_string(Path::new(CORPUS).join("../src/main.rs")).unwrap();
        let targets: BTreeSet<&str> = program
            .lines()
            .filter_map(|line| line.strip_prefix("    (\"")?.split_once('"'))
            .map(|(name, _)| name)
            .collect();
        let folders: Vec<String> = std::fs::read_dir(CORPUS)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(targets, folders.iter().map(String::as_str).collect());
    }
}
