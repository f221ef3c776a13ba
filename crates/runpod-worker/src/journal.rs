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

use crate::platform_urls::OutputDelivery;
use crate::wire::Job;

/// What the file may have before it is looked at whether it can be shorter.
const COMPACT_ABOVE: u64 = 1024 * 1024;

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Somebody else has it.
    #[error("another worker uses `{}`", .0.display())]
    InUse(PathBuf),
    /// The folder or a file in it cannot be used.
    #[error("`{}` cannot be used", .0.display())]
    Unusable(PathBuf, #[source] std::io::Error),
}

/// What a worker before this one has left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournaledJob {
    pub(crate) job: Job,
    pub(crate) stage: JobStage,
}

/// How far a job was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobStage {
    /// Handed out; the model was given it so many times.
    Taken { starts: u32 },
    /// WorkerDeps of its output are with the platform already.
    Streaming,
    /// It is over, and the platform does not know.
    Finished {
        delivered: OutputDelivery,
        body: Bytes,
    },
}

/// The jobs in in_flight, and the file that knows them.
pub struct Journal(Mutex<Inner>);

struct Inner {
    jobs: BTreeMap<String, JournaledJob>,
    file: Option<JournalFile>,
}

struct JournalFile {
    file: File,
    path: PathBuf,
    size: u64,
    /// Whether the file does not know all that happened.
    stale: bool,
    /// Held as long as the journal: nobody else opens it meanwhile.
    _lock: File,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JournalEntry<'a> {
    Taken {
        id: String,
        #[serde(borrow)]
        job: &'a RawValue,
    },
    #[serde(rename = "begun")]
    Started { id: String },
    #[serde(rename = "parted")]
    Streaming { id: String },
    #[serde(rename = "over")]
    Finished {
        id: String,
        in_parts: bool,
        #[serde(borrow)]
        body: &'a RawValue,
    },
    #[serde(rename = "gone")]
    Removed { id: String },
}

impl Journal {
    /// One that is forgotten with the process.
    pub fn in_memory() -> Self {
        Self(Mutex::new(Inner {
            jobs: BTreeMap::new(),
            file: None,
        }))
    }

    /// Opens the journal of a folder, which is made if it is not there.
    pub fn open(folder: &Path) -> Result<Self, JournalError> {
        let unusable = |error| JournalError::Unusable(folder.to_owned(), error);
        std::fs::create_dir_all(folder).map_err(unusable)?;
        let lock = File::create(folder.join("worker.lock")).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(JournalError::InUse(folder.to_owned()));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let path = folder.join("jobs.jsonl");
        let jobs = read(&path).map_err(unusable)?;
        let (file, stale) = match replace_file(&path, &lines(&jobs)) {
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
            jobs,
            file: Some(JournalFile {
                file,
                path,
                size,
                stale,
                _lock: lock,
            }),
        })))
    }

    /// What is in in_flight.
    pub(crate) fn jobs(&self) -> Vec<JournaledJob> {
        self.lock().jobs.values().cloned().collect()
    }

    /// The platform handed out a job.
    pub(crate) fn record_taken(&self, job: &Job) {
        let mut inner = self.lock();
        inner.jobs.insert(
            job.id.clone(),
            JournaledJob {
                job: job.clone(),
                stage: JobStage::Taken { starts: 0 },
            },
        );
        if let Some(json) = raw(&job.json) {
            inner.append(&JournalEntry::Taken {
                id: job.id.clone(),
                job: json,
            });
        }
    }

    /// The model is given the job.
    pub(crate) fn record_started(&self, id: &str) {
        self.record(id, &JournalEntry::Started { id: id.to_owned() });
    }

    /// The platform is given the first part of the job's output.
    pub(crate) fn record_streaming(&self, id: &str) {
        self.record(id, &JournalEntry::Streaming { id: id.to_owned() });
    }

    /// The job is over.
    pub(crate) fn record_finished(&self, id: &str, delivered: OutputDelivery, body: &Bytes) {
        let Some(raw) = raw(body) else { return };
        self.record(
            id,
            &JournalEntry::Finished {
                id: id.to_owned(),
                in_parts: delivered == OutputDelivery::Streamed,
                body: raw,
            },
        );
    }

    /// The job is no longer ours.
    pub(crate) fn remove(&self, id: &str) {
        self.record(id, &JournalEntry::Removed { id: id.to_owned() });
        self.lock().compact();
    }

    fn record(&self, id: &str, line: &JournalEntry<'_>) {
        let mut inner = self.lock();
        if inner.jobs.contains_key(id) {
            apply(&mut inner.jobs, line);
            inner.append(line);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Writes down what has happened, which is in `jobs` already.
    fn append(&mut self, line: &JournalEntry<'_>) {
        let Some(file) = &mut self.file else { return };
        if !file.stale {
            let Err(error) = file.append(&to_line(line)) else {
                return;
            };
            // Jobs go on: a worker with a full disk is better than none.
            tracing::error!(file = %file.path.display(), %error, "what this worker holds is not written down; free some space");
            file.stale = true;
        }
        if file.rewrite(&self.jobs).is_ok() {
            file.stale = false;
            tracing::info!(file = %file.path.display(), "what this worker holds is written down");
        }
    }

    fn compact(&mut self) {
        let Some(file) = &mut self.file else { return };
        let needed: usize = self
            .jobs
            .values()
            .map(|left| left.job.json.len() + 1024)
            .sum();
        if file.size < COMPACT_ABOVE || file.size / 4 < needed as u64 {
            return;
        }
        if let Err(error) = file.rewrite(&self.jobs) {
            tracing::warn!(file = %file.path.display(), %error, "the list of jobs could not be made shorter");
            file.stale = true;
        }
    }
}

impl JournalFile {
    fn append(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.file.write_all(text)?;
        self.size += text.len() as u64;
        Ok(())
    }

    /// Makes the file say what is jobs and nothing else: in the place of the old one, or, when there is no room
    /// for two, over it. A death in the midst of that loses what is not written yet, and nothing is run twice.
    fn rewrite(&mut self, jobs: &BTreeMap<String, JournaledJob>) -> std::io::Result<()> {
        let text = lines(jobs);
        if let Ok(file) = replace_file(&self.path, &text) {
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

fn apply(jobs: &mut BTreeMap<String, JournaledJob>, line: &JournalEntry<'_>) {
    match line {
        JournalEntry::Taken { id, job } => {
            let job = Job {
                id: id.clone(),
                json: Bytes::copy_from_slice(job.get().as_bytes()),
            };
            jobs.insert(
                id.clone(),
                JournaledJob {
                    job,
                    stage: JobStage::Taken { starts: 0 },
                },
            );
        }
        JournalEntry::Started { id } => {
            if let Some(JournaledJob {
                stage: JobStage::Taken { starts },
                ..
            }) = jobs.get_mut(id)
            {
                *starts += 1;
            }
        }
        JournalEntry::Streaming { id } => {
            if let Some(left) = jobs.get_mut(id) {
                left.stage = JobStage::Streaming;
            }
        }
        JournalEntry::Finished { id, in_parts, body } => {
            if let Some(left) = jobs.get_mut(id) {
                let delivered = if *in_parts {
                    OutputDelivery::Streamed
                } else {
                    OutputDelivery::WithResult
                };
                left.stage = JobStage::Finished {
                    delivered,
                    body: Bytes::copy_from_slice(body.get().as_bytes()),
                };
            }
        }
        JournalEntry::Removed { id } => {
            jobs.remove(id);
        }
    }
}

/// What the file says. A last line that was not finished is not a line.
fn read(path: &Path) -> std::io::Result<BTreeMap<String, JournaledJob>> {
    let mut jobs = BTreeMap::new();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(jobs),
        Err(error) => return Err(error),
    };
    for text in BufReader::new(file).split(b'\n') {
        match serde_json::from_slice(&text?) {
            Ok(line) => apply(&mut jobs, &line),
            Err(error) => tracing::debug!(%error, "a line of the list of jobs cannot be read"),
        }
    }
    Ok(jobs)
}

/// A file with nothing but what is jobs.
fn lines(jobs: &BTreeMap<String, JournaledJob>) -> Vec<u8> {
    let mut text = Vec::new();
    for JournaledJob { job, stage } in jobs.values() {
        let id = || job.id.clone();
        let Some(json) = raw(&job.json) else {
            continue;
        };
        text.extend(to_line(&JournalEntry::Taken {
            id: id(),
            job: json,
        }));
        match stage {
            JobStage::Taken { starts } => {
                (0..*starts).for_each(|_| text.extend(to_line(&JournalEntry::Started { id: id() })))
            }
            JobStage::Streaming => text.extend(to_line(&JournalEntry::Streaming { id: id() })),
            JobStage::Finished { delivered, body } => {
                let Some(body) = raw(body) else { continue };
                text.extend(to_line(&JournalEntry::Finished {
                    id: id(),
                    in_parts: *delivered == OutputDelivery::Streamed,
                    body,
                }));
            }
        }
    }
    text
}

/// Writes a file, and puts it in the place of the one at `path`.
fn replace_file(path: &Path, text: &[u8]) -> std::io::Result<File> {
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

fn to_line(line: &JournalEntry<'_>) -> Vec<u8> {
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
