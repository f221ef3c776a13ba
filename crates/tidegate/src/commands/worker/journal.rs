//! Where a worker writes down what it holds, and by what name the platform knows it.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_core::chain;
use tidegate_runpod_worker::{Journal, JournalError};

use crate::data_dir::{DataDir, usual};
use crate::usage_error::UsageError;

/// Workers of one script on one machine that nobody gave a name.
const NAMELESS: usize = 64;
const NAME_FILE: &str = "worker.id";

/// An open journal, and whose it is.
pub(super) struct WorkerJournal {
    pub(super) journal: Journal,
    pub(super) worker: String,
}

/// Opens the journal. Where nothing was said and nothing can be written, it is in memory only.
pub(super) fn open(
    said: Option<&DataDir>,
    target: &Path,
    worker: Option<&str>,
) -> Result<WorkerJournal, UsageError> {
    match said {
        Some(DataDir::None) => Ok(in_memory(worker)),
        Some(DataDir::At(folder)) => open_at(folder, worker).map_err(|error| refused(&error)),
        None => {
            for folder in folders(target, worker) {
                match open_at(&folder, worker) {
                    Ok(kept) => return Ok(kept),
                    Err(JournalError::InUse(_)) if worker.is_none() => continue,
                    Err(error @ JournalError::InUse(_)) => return Err(refused(&error)),
                    Err(error) => {
                        let reason = chain(&error).to_string();
                        tracing::warn!(
                            reason,
                            "what this worker holds is not written down; give a folder with --data-dir"
                        );
                        return Ok(in_memory(worker));
                    }
                }
            }
            tracing::warn!(
                "there is no folder for what this worker holds; give one with --data-dir"
            );
            Ok(in_memory(worker))
        }
    }
}

fn open_at(folder: &Path, worker: Option<&str>) -> Result<WorkerJournal, JournalError> {
    let journal = Journal::open(folder)?;
    let file = folder.join(NAME_FILE);
    // A worker without a name gets one that stays: by another one the platform would not know its jobs.
    let worker = match (worker, fs::read_to_string(&file)) {
        (Some(worker), _) => worker.to_owned(),
        (None, Ok(known)) if !known.trim().is_empty() => known.trim().to_owned(),
        (None, _) => {
            let fresh = fresh();
            fs::write(&file, &fresh).map_err(|error| JournalError::Unusable(file, error))?;
            fresh
        }
    };
    Ok(WorkerJournal { journal, worker })
}

fn in_memory(worker: Option<&str>) -> WorkerJournal {
    WorkerJournal {
        journal: Journal::in_memory(),
        worker: worker.map_or_else(fresh, str::to_owned),
    }
}

/// Places for this worker, best first.
fn folders(target: &Path, worker: Option<&str>) -> Vec<PathBuf> {
    let names: Vec<String> = match worker {
        Some(worker) => vec![format!("worker-{}", worker.replace(['/', '\0'], "_"))],
        None => (0..NAMELESS)
            .map(|number| format!("worker-{number}"))
            .collect(),
    };
    names
        .iter()
        .filter_map(|name| usual(target, name))
        .collect()
}

fn refused(error: &JournalError) -> UsageError {
    let hint = match error {
        JournalError::InUse(_) => "give each worker a RUNPOD_POD_ID or a --data-dir of its own",
        JournalError::Unusable(..) => {
            "give another folder with --data-dir, or `none` to keep jobs in memory only"
        }
    };
    UsageError::new(chain(error).to_string()).hint(hint)
}

/// A random name in the form that platforms are used to.
fn fresh() -> String {
    let mut bits = [0u8; 16];
    // Without chance there is only one such worker, and its name is still one.
    getrandom::fill(&mut bits).ok();
    bits[6] = bits[6] & 0x0f | 0x40;
    bits[8] = bits[8] & 0x3f | 0x80;
    let text: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    [
        &text[..8],
        &text[8..12],
        &text[12..16],
        &text[16..20],
        &text[20..],
    ]
    .join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nameless_worker_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let at = DataDir::At(folder.path().to_owned());
        let name = || {
            open(Some(&at), Path::new("/x"), None)
                .map(|kept| kept.worker)
                .unwrap()
        };
        let first = name();
        assert_eq!(first.len(), 36);
        assert_eq!(name(), first);
        assert_eq!(
            open(Some(&at), Path::new("/x"), Some("pod"))
                .map(|kept| kept.worker)
                .unwrap(),
            "pod"
        );
    }

    #[test]
    fn a_folder_in_use_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = DataDir::At(folder.path().to_owned());
        let _first = open(Some(&at), Path::new("/x"), None).unwrap();
        assert!(open(Some(&at), Path::new("/x"), None).is_err());
    }
}
