//! What the worker holds, in a file, so that the next one knows when this one is killed.
//!
//! One line of JSON per event, only ever put at the end; when most lines are about jobs that are gone, the
//! file is written anew. Nothing is synced: it survives the death of the process, not that of the machine,
//! after which the platform gives the jobs to somebody else anyway.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::addresses::Delivered;
use crate::wire::Job;

/// What the file may have before it is looked at whether it can be shorter.
const ROOM: u64 = 1024 * 1024;

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has it.
    #[error("another worker uses `{}`", .0.display())]
    InUse(PathBuf),
    /// The folder or a file in it cannot be used.
    #[error("`{}` cannot be used", .0.display())]
    Unusable(PathBuf, #[source] std::io::Error),
}

/// What a worker before this one has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) job: Job,
    pub(crate) stage: Stage,
}

/// How far a job was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Handed out; the model was given it so many times.
    Taken { begun: u32 },
    /// Parts of its output are with the platform already.
    Parted,
    /// It is over, and the platform does not know.
    Over { delivered: Delivered, body: Bytes },
}

/// The jobs in hand, and the file that knows them.
pub struct Journal(Mutex<Inner>);

struct Inner {
    held: BTreeMap<String, Left>,
    file: Option<Kept>,
}

struct Kept {
    file: File,
    path: PathBuf,
    size: u64,
    /// Held as long as the journal: nobody else opens it meanwhile.
    _lock: File,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Taken {
        id: String,
        #[serde(borrow)]
        job: &'a RawValue,
    },
    Begun {
        id: String,
    },
    Parted {
        id: String,
    },
    Over {
        id: String,
        in_parts: bool,
        #[serde(borrow)]
        body: &'a RawValue,
    },
    Gone {
        id: String,
    },
}

impl Journal {
    /// One that is forgotten with the process.
    pub fn in_memory() -> Self {
        Self(Mutex::new(Inner { held: BTreeMap::new(), file: None }))
    }

    /// Opens the journal of a folder, which is made if it is not there.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        let unusable = |error| OpenError::Unusable(folder.to_owned(), error);
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let lock = File::create(folder.join("worker.lock")).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(OpenError::InUse(folder.to_owned())),
            Err(std::fs::TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let path = folder.join("jobs.jsonl");
        let held = read(&path).map_err(unusable)?;
        let (file, size) = rewrite(&path, &held).map_err(unusable)?;
        Ok(Self(Mutex::new(Inner { held, file: Some(Kept { file, path, size, _lock: lock }) })))
    }

    /// What is in hand.
    pub(crate) fn held(&self) -> Vec<Left> {
        self.lock().held.values().cloned().collect()
    }

    /// The platform handed out a job.
    pub(crate) fn taken(&self, job: &Job) {
        let mut inner = self.lock();
        inner.held.insert(job.id.clone(), Left { job: job.clone(), stage: Stage::Taken { begun: 0 } });
        if let Some(whole) = raw(&job.whole) {
            inner.note(&Line::Taken { id: job.id.clone(), job: whole });
        }
    }

    /// The model is given the job.
    pub(crate) fn begun(&self, id: &str) {
        self.moved(id, &Line::Begun { id: id.to_owned() });
    }

    /// The platform is given the first part of the job's output.
    pub(crate) fn parted(&self, id: &str) {
        self.moved(id, &Line::Parted { id: id.to_owned() });
    }

    /// The job is over.
    pub(crate) fn over(&self, id: &str, delivered: Delivered, body: &Bytes) {
        let Some(raw) = raw(body) else { return };
        self.moved(id, &Line::Over { id: id.to_owned(), in_parts: delivered == Delivered::InParts, body: raw });
    }

    /// The job is no longer ours.
    pub(crate) fn gone(&self, id: &str) {
        self.moved(id, &Line::Gone { id: id.to_owned() });
        self.lock().shorten();
    }

    fn moved(&self, id: &str, line: &Line<'_>) {
        let mut inner = self.lock();
        if inner.held.contains_key(id) {
            inner.note(line);
            apply(&mut inner.held, line);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn note(&mut self, line: &Line<'_>) {
        let Some(kept) = &mut self.file else { return };
        let text = line_of(line);
        match kept.file.write_all(&text) {
            Ok(()) => kept.size += text.len() as u64,
            Err(error) => {
                // Jobs go on: a worker with a full disk is better than none.
                tracing::error!(file = %kept.path.display(), %error, "what this worker holds is no longer written down; free some space and start it again");
                self.file = None;
            }
        }
    }

    fn shorten(&mut self) {
        let Some(kept) = &mut self.file else { return };
        let needed: usize = self.held.values().map(|left| left.job.whole.len() + 1024).sum();
        if kept.size < ROOM || kept.size / 4 < needed as u64 {
            return;
        }
        match rewrite(&kept.path, &self.held) {
            Ok((file, size)) => (kept.file, kept.size) = (file, size),
            Err(error) => tracing::warn!(file = %kept.path.display(), %error, "the list of jobs could not be made shorter"),
        }
    }
}

fn apply(held: &mut BTreeMap<String, Left>, line: &Line<'_>) {
    match line {
        Line::Taken { id, job } => {
            let job = Job { id: id.clone(), whole: Bytes::copy_from_slice(job.get().as_bytes()) };
            held.insert(id.clone(), Left { job, stage: Stage::Taken { begun: 0 } });
        }
        Line::Begun { id } => {
            if let Some(Left { stage: Stage::Taken { begun }, .. }) = held.get_mut(id) {
                *begun += 1;
            }
        }
        Line::Parted { id } => {
            if let Some(left) = held.get_mut(id) {
                left.stage = Stage::Parted;
            }
        }
        Line::Over { id, in_parts, body } => {
            if let Some(left) = held.get_mut(id) {
                let delivered = if *in_parts { Delivered::InParts } else { Delivered::AtOnce };
                left.stage = Stage::Over { delivered, body: Bytes::copy_from_slice(body.get().as_bytes()) };
            }
        }
        Line::Gone { id } => {
            held.remove(id);
        }
    }
}

/// What the file says. A last line that was not finished is not a line.
fn read(path: &Path) -> std::io::Result<BTreeMap<String, Left>> {
    let mut held = BTreeMap::new();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(held),
        Err(error) => return Err(error),
    };
    for text in BufReader::new(file).split(b'\n') {
        match serde_json::from_slice(&text?) {
            Ok(line) => apply(&mut held, &line),
            Err(error) => tracing::debug!(%error, "a line of the list of jobs cannot be read"),
        }
    }
    Ok(held)
}

/// Writes a file with nothing but what is held, and puts it in the place of the old one.
fn rewrite(path: &Path, held: &BTreeMap<String, Left>) -> std::io::Result<(File, u64)> {
    let next = path.with_extension("next");
    let mut text = Vec::new();
    for Left { job, stage } in held.values() {
        let id = || job.id.clone();
        let Some(whole) = raw(&job.whole) else { continue };
        text.extend(line_of(&Line::Taken { id: id(), job: whole }));
        match stage {
            Stage::Taken { begun } => (0..*begun).for_each(|_| text.extend(line_of(&Line::Begun { id: id() }))),
            Stage::Parted => text.extend(line_of(&Line::Parted { id: id() })),
            Stage::Over { delivered, body } => {
                let Some(body) = raw(body) else { continue };
                text.extend(line_of(&Line::Over { id: id(), in_parts: *delivered == Delivered::InParts, body }));
            }
        }
    }
    // Inputs are nobody else's business.
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.create(true).write(true).truncate(true).open(&next)?;
    file.write_all(&text)?;
    std::fs::rename(&next, path)?;
    Ok((file, text.len() as u64))
}

fn line_of(line: &Line<'_>) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("a line is JSON");
    // A line break inside somebody's JSON can only be a blank between two words.
    text.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
    text.push(b'\n');
    text
}

fn raw(json: &Bytes) -> Option<&RawValue> {
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str) -> Job {
        Job { id: id.to_owned(), whole: format!("{{\"id\":\"{id}\",\n\"input\":{{}}}}").into() }
    }

    fn stages(journal: &Journal) -> Vec<(String, Stage)> {
        journal.held().into_iter().map(|left| (left.job.id, left.stage)).collect()
    }

    #[test]
    fn the_next_worker_finds_what_this_one_held() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        for id in ["a", "b", "c", "d", "e"] {
            journal.taken(&job(id));
        }
        journal.begun("b");
        journal.begun("c");
        journal.over("c", Delivered::AtOnce, &Bytes::from_static(b"{\"output\":1}"));
        journal.over("d", Delivered::AtOnce, &Bytes::from_static(b"{}"));
        journal.gone("d");
        journal.parted("e");
        drop(journal);
        let expected = [
            ("a".to_owned(), Stage::Taken { begun: 0 }),
            ("b".to_owned(), Stage::Taken { begun: 1 }),
            ("c".to_owned(), Stage::Over { delivered: Delivered::AtOnce, body: "{\"output\":1}".into() }),
            ("e".to_owned(), Stage::Parted),
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
        journal.taken(&job("a"));
        drop(journal);
        let path = folder.path().join("jobs.jsonl");
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"taken\":{\"id\":\"b\",\"jo");
        std::fs::write(&path, text).unwrap();
        assert_eq!(stages(&Journal::open(folder.path()).unwrap()), [("a".to_owned(), Stage::Taken { begun: 0 })]);
    }

    #[test]
    fn two_workers_do_not_share_one() {
        let folder = tempfile::tempdir().unwrap();
        let _first = Journal::open(folder.path()).unwrap();
        assert!(matches!(Journal::open(folder.path()), Err(OpenError::InUse(_))));
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        let large = Bytes::from(format!("\"{}\"", "x".repeat(100_000)));
        for i in 0..40 {
            journal.taken(&job(&i.to_string()));
            journal.over(&i.to_string(), Delivered::AtOnce, &large);
            journal.gone(&i.to_string());
        }
        assert!(std::fs::metadata(folder.path().join("jobs.jsonl")).unwrap().len() < 2 * ROOM);
    }
}
