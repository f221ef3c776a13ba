//! The journal: a file with the jobs of this worker, for the next process when this one is killed.
//!
//! Each event appends one line of JSON; when most lines are about removed jobs, the file is rewritten.
//! Nothing is synced: the journal survives a crash of the process, not of the machine, after which the
//! platform gives the jobs to another worker anyway. A failed write, for example on a full disk, stops
//! no job: the next event writes the whole file again.

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

/// The size above which the file may be compacted, in bytes.
const COMPACT_ABOVE: u64 = 1024 * 1024;

/// Why the journal was not opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another process has it open.
    #[error("another worker uses `{}`", .0.display())]
    InUse(PathBuf),
    /// The folder or a file in it cannot be used.
    #[error("`{}` cannot be used", .0.display())]
    Unusable(PathBuf, #[source] std::io::Error),
}

/// A job in the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournaledJob {
    pub(crate) job: Job,
    pub(crate) stage: JobStage,
}

/// The stage of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobStage {
    /// The platform handed it out; the model started it `starts` times.
    Taken { starts: u32 },
    /// The platform has parts of its output.
    Streaming,
    /// It has ended, and its result is not delivered.
    Finished {
        delivered: OutputDelivery,
        body: Bytes,
    },
}

/// The jobs of a worker, in memory and in a file.
pub struct Journal(Mutex<Inner>);

struct Inner {
    jobs: BTreeMap<String, JournaledJob>,
    file: Option<JournalFile>,
}

struct JournalFile {
    file: File,
    path: PathBuf,
    size: u64,
    /// Whether a write failed, so that the file is out of date.
    stale: bool,
    /// Held as long as the journal, so that no other process opens it.
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
    /// A journal in memory, which is lost with the process.
    pub fn in_memory() -> Self {
        Self(Mutex::new(Inner {
            jobs: BTreeMap::new(),
            file: None,
        }))
    }

    /// Opens the journal in a folder, which is created if it does not exist.
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
            // On a full disk, the existing file is used.
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

    /// All jobs.
    pub(crate) fn jobs(&self) -> Vec<JournaledJob> {
        self.lock().jobs.values().cloned().collect()
    }

    /// Records that the platform handed out a job.
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

    /// Records that the model starts the job.
    pub(crate) fn record_started(&self, id: &str) {
        self.record(id, &JournalEntry::Started { id: id.to_owned() });
    }

    /// Records that the first part of the output is sent.
    pub(crate) fn record_streaming(&self, id: &str) {
        self.record(id, &JournalEntry::Streaming { id: id.to_owned() });
    }

    /// Records the result.
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

    /// Removes a job.
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
    /// Appends an entry whose effect is already in `jobs`.
    fn append(&mut self, line: &JournalEntry<'_>) {
        let Some(file) = &mut self.file else { return };
        if !file.stale {
            let Err(error) = file.append(&to_line(line)) else {
                return;
            };
            // Jobs continue: a worker with a full disk is better than none.
            tracing::error!(file = %file.path.display(), %error, "failed to write journal; free some disk space");
            file.stale = true;
        }
        if file.rewrite(&self.jobs).is_ok() {
            file.stale = false;
            tracing::info!(file = %file.path.display(), "journal written");
        }
    }

    fn compact(&mut self) {
        let Some(file) = &mut self.file else { return };
        let needed: usize = self
            .jobs
            .values()
            .map(|entry| entry.job.json.len() + 1024)
            .sum();
        if file.size < COMPACT_ABOVE || file.size / 4 < needed as u64 {
            return;
        }
        if let Err(error) = file.rewrite(&self.jobs) {
            tracing::warn!(file = %file.path.display(), %error, "failed to compact journal");
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

    /// Rewrites the file with the current jobs: as a new file, or in place when there is no space for
    /// two. A crash during that loses the unwritten entries, and no job runs twice.
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
            if let Some(entry) = jobs.get_mut(id) {
                entry.stage = JobStage::Streaming;
            }
        }
        JournalEntry::Finished { id, in_parts, body } => {
            if let Some(entry) = jobs.get_mut(id) {
                let delivered = if *in_parts {
                    OutputDelivery::Streamed
                } else {
                    OutputDelivery::WithResult
                };
                entry.stage = JobStage::Finished {
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

/// Reads the file. An incomplete last line is ignored.
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
            Err(error) => tracing::debug!(%error, "ignored invalid journal line"),
        }
    }
    Ok(jobs)
}

/// The content of a file with these jobs.
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

/// Writes a new file and renames it to `path`.
fn replace_file(path: &Path, text: &[u8]) -> std::io::Result<File> {
    let next = path.with_extension("next");
    // Inputs are private.
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
        // An incomplete file would use the remaining space.
        std::fs::remove_file(&next).ok();
    }
    written
}

fn to_line(line: &JournalEntry<'_>) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).expect("an entry serializes to JSON");
    // In the client's JSON, a raw line break can only be whitespace between tokens.
    text.iter_mut()
        .filter(|byte| **byte == b'\n')
        .for_each(|byte| *byte = b' ');
    text.push(b'\n');
    text
}

fn raw(json: &Bytes) -> Option<&RawValue> {
    serde_json::from_slice(json).ok()
}
