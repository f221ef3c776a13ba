//! What the worker holds, in a file, so that the next one knows when this one is killed.
//!
//! One line of JSON per event, only ever put at the end; when most lines are about jobs that are gone, the
//! file is written anew. Nothing is synced: it survives the death of the process, not that of the machine,
//! after which the platform gives the jobs to somebody else anyway. What cannot be written, because the disk
//! is full, stops no job: at each event that follows all of it is tried again.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Seek, Write};
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
    /// Whether the file does not know all that happened.
    behind: bool,
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
        Self(Mutex::new(Inner {
            held: BTreeMap::new(),
            file: None,
        }))
    }

    /// Opens the journal of a folder, which is made if it is not there.
    pub fn open(folder: &Path) -> Result<Self, OpenError> {
        let unusable = |error| OpenError::Unusable(folder.to_owned(), error);
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let lock = File::create(folder.join("worker.lock")).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(OpenError::InUse(folder.to_owned()));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let path = folder.join("jobs.jsonl");
        let held = read(&path).map_err(unusable)?;
        let (file, behind) = match replaced(&path, &lines(&held)) {
            Ok(file) => (file, false),
            // With a disk that is full, what is there already has to do.
            Err(_) if path.exists() => (
                File::options().write(true).open(&path).map_err(unusable)?,
                true,
            ),
            Err(error) => return Err(unusable(error)),
        };
        let size = file.metadata().map_err(unusable)?.len();
        Ok(Self(Mutex::new(Inner {
            held,
            file: Some(Kept {
                file,
                path,
                size,
                behind,
                _lock: lock,
            }),
        })))
    }

    /// What is in hand.
    pub(crate) fn held(&self) -> Vec<Left> {
        self.lock().held.values().cloned().collect()
    }

    /// The platform handed out a job.
    pub(crate) fn taken(&self, job: &Job) {
        let mut inner = self.lock();
        inner.held.insert(
            job.id.clone(),
            Left {
                job: job.clone(),
                stage: Stage::Taken { begun: 0 },
            },
        );
        if let Some(whole) = raw(&job.whole) {
            inner.note(&Line::Taken {
                id: job.id.clone(),
                job: whole,
            });
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
        self.moved(
            id,
            &Line::Over {
                id: id.to_owned(),
                in_parts: delivered == Delivered::InParts,
                body: raw,
            },
        );
    }

    /// The job is no longer ours.
    pub(crate) fn gone(&self, id: &str) {
        self.moved(id, &Line::Gone { id: id.to_owned() });
        self.lock().shorten();
    }

    fn moved(&self, id: &str, line: &Line<'_>) {
        let mut inner = self.lock();
        if inner.held.contains_key(id) {
            apply(&mut inner.held, line);
            inner.note(line);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Writes down what has happened, which is in `held` already.
    fn note(&mut self, line: &Line<'_>) {
        let Some(kept) = &mut self.file else { return };
        if !kept.behind {
            let Err(error) = kept.append(&line_of(line)) else {
                return;
            };
            // Jobs go on: a worker with a full disk is better than none.
            tracing::error!(file = %kept.path.display(), %error, "what this worker holds is not written down; free some space");
            kept.behind = true;
        }
        if kept.write_anew(&self.held).is_ok() {
            kept.behind = false;
            tracing::info!(file = %kept.path.display(), "what this worker holds is written down");
        }
    }

    fn shorten(&mut self) {
        let Some(kept) = &mut self.file else { return };
        let needed: usize = self
            .held
            .values()
            .map(|left| left.job.whole.len() + 1024)
            .sum();
        if kept.size < ROOM || kept.size / 4 < needed as u64 {
            return;
        }
        if let Err(error) = kept.write_anew(&self.held) {
            tracing::warn!(file = %kept.path.display(), %error, "the list of jobs could not be made shorter");
            kept.behind = true;
        }
    }
}

impl Kept {
    fn append(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.file.write_all(text)?;
        self.size += text.len() as u64;
        Ok(())
    }

    /// Makes the file say what is held and nothing else: in the place of the old one, or, when there is no room
    /// for two, over it. A death in the midst of that loses what is not written yet, and nothing is run twice.
    fn write_anew(&mut self, held: &BTreeMap<String, Left>) -> std::io::Result<()> {
        let text = lines(held);
        if let Ok(file) = replaced(&self.path, &text) {
            self.file = file;
        } else {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(&text)?;
        }
        self.size = text.len() as u64;
        Ok(())
    }
}

fn apply(held: &mut BTreeMap<String, Left>, line: &Line<'_>) {
    match line {
        Line::Taken { id, job } => {
            let job = Job {
                id: id.clone(),
                whole: Bytes::copy_from_slice(job.get().as_bytes()),
            };
            held.insert(
                id.clone(),
                Left {
                    job,
                    stage: Stage::Taken { begun: 0 },
                },
            );
        }
        Line::Begun { id } => {
            if let Some(Left {
                stage: Stage::Taken { begun },
                ..
            }) = held.get_mut(id)
            {
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
                let delivered = if *in_parts {
                    Delivered::InParts
                } else {
                    Delivered::AtOnce
                };
                left.stage = Stage::Over {
                    delivered,
                    body: Bytes::copy_from_slice(body.get().as_bytes()),
                };
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

/// A file with nothing but what is held.
fn lines(held: &BTreeMap<String, Left>) -> Vec<u8> {
    let mut text = Vec::new();
    for Left { job, stage } in held.values() {
        let id = || job.id.clone();
        let Some(whole) = raw(&job.whole) else {
            continue;
        };
        text.extend(line_of(&Line::Taken {
            id: id(),
            job: whole,
        }));
        match stage {
            Stage::Taken { begun } => {
                (0..*begun).for_each(|_| text.extend(line_of(&Line::Begun { id: id() })))
            }
            Stage::Parted => text.extend(line_of(&Line::Parted { id: id() })),
            Stage::Over { delivered, body } => {
                let Some(body) = raw(body) else { continue };
                text.extend(line_of(&Line::Over {
                    id: id(),
                    in_parts: *delivered == Delivered::InParts,
                    body,
                }));
            }
        }
    }
    text
}

/// Writes a file, and puts it in the place of the one at `path`.
fn replaced(path: &Path, text: &[u8]) -> std::io::Result<File> {
    let next = path.with_extension("next");
    // Inputs are nobody else's business.
    let mut options = OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options
        .create(true)
        .write(true)
        .truncate(true)
        .open(&next)
        .and_then(|mut file| {
            file.write_all(text)?;
            std::fs::rename(&next, path)?;
            Ok(file)
        });
    if written.is_err() {
        // Half a file would take the room that there is.
        std::fs::remove_file(&next).ok();
    }
    written
}

fn line_of(line: &Line<'_>) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("a line is JSON");
    // A line break inside somebody's JSON can only be a blank between two words.
    text.iter_mut()
        .filter(|byte| **byte == b'\n')
        .for_each(|byte| *byte = b' ');
    text.push(b'\n');
    text
}

fn raw(json: &Bytes) -> Option<&RawValue> {
    serde_json::from_slice(json).ok()
}
