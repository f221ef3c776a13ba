//! Opens the journal of a worker, and determines its id.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_core::chain;
use tidegate_runpod_worker::{Journal, JournalError};

use crate::data_dir::{DataDir, default_path};
use crate::usage_error::UsageError;

/// Workers without RUNPOD_POD_ID that one script can have on one machine.
const MAX_WITHOUT_ID: usize = 64;
const ID_FILE: &str = "worker.id";

/// An open journal and the id of its worker.
pub(super) struct WorkerJournal {
    pub(super) journal: Journal,
    pub(super) worker_id: String,
}

/// Opens the journal. If the default folder is not writable, the journal stays in memory.
pub(super) fn open(
    data_dir: Option<&DataDir>,
    target: &Path,
    worker_id: Option<&str>,
) -> Result<WorkerJournal, UsageError> {
    match data_dir {
        Some(DataDir::None) => Ok(in_memory(worker_id)),
        Some(DataDir::At(folder)) => open_at(folder, worker_id).map_err(|error| open_error(&error)),
        None => {
            for folder in folders(target, worker_id) {
                match open_at(&folder, worker_id) {
                    Ok(opened) => return Ok(opened),
                    Err(JournalError::InUse(_)) if worker_id.is_none() => continue,
                    Err(error @ JournalError::InUse(_)) => return Err(open_error(&error)),
                    Err(error) => {
                        let reason = chain(&error).to_string();
                        tracing::warn!(
                            reason,
                            "failed to open the journal, keeping it in memory; set --data-dir"
                        );
                        return Ok(in_memory(worker_id));
                    }
                }
            }
            tracing::warn!("no free folder for the journal, keeping it in memory; set --data-dir");
            Ok(in_memory(worker_id))
        }
    }
}

fn open_at(folder: &Path, worker_id: Option<&str>) -> Result<WorkerJournal, JournalError> {
    let journal = Journal::open(folder)?;
    let file = folder.join(ID_FILE);
    // A generated id is stored, because the platform knows the jobs of the worker by it.
    let worker_id = match (worker_id, fs::read_to_string(&file)) {
        (Some(id), _) => id.to_owned(),
        (None, Ok(known)) if !known.trim().is_empty() => known.trim().to_owned(),
        (None, _) => {
            let id = random_id();
            fs::write(&file, &id).map_err(|error| JournalError::Unusable(file, error))?;
            id
        }
    };
    Ok(WorkerJournal { journal, worker_id })
}

fn in_memory(worker_id: Option<&str>) -> WorkerJournal {
    WorkerJournal {
        journal: Journal::in_memory(),
        worker_id: worker_id.map_or_else(random_id, str::to_owned),
    }
}

/// Folders for the journal of this worker, best first.
fn folders(target: &Path, worker_id: Option<&str>) -> Vec<PathBuf> {
    let names: Vec<String> = match worker_id {
        Some(id) => vec![format!("worker-{}", id.replace(['/', '\0'], "_"))],
        None => (0..MAX_WITHOUT_ID)
            .map(|number| format!("worker-{number}"))
            .collect(),
    };
    names
        .iter()
        .filter_map(|name| default_path(target, name))
        .collect()
}

fn open_error(error: &JournalError) -> UsageError {
    let hint = match error {
        JournalError::InUse(_) => "set a different RUNPOD_POD_ID or --data-dir for each worker",
        JournalError::Unusable(..) => {
            "set another folder with --data-dir, or `none` to keep the journal in memory"
        }
    };
    UsageError::new(chain(error).to_string()).hint(hint)
}

/// A random UUID, which is what platforms expect.
fn random_id() -> String {
    let mut bytes = [0u8; 16];
    // Without random bytes the id is constant, which is enough for one worker.
    getrandom::fill(&mut bytes).ok();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
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
    fn a_generated_id_stays_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let at = DataDir::At(folder.path().to_owned());
        let name = || {
            open(Some(&at), Path::new("/x"), None)
                .map(|opened| opened.worker_id)
                .unwrap()
        };
        let first = name();
        assert_eq!(first.len(), 36);
        assert_eq!(name(), first);
        assert_eq!(
            open(Some(&at), Path::new("/x"), Some("pod"))
                .map(|opened| opened.worker_id)
                .unwrap(),
            "pod"
        );
    }

    #[test]
    fn a_folder_in_use_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let at = DataDir::At(folder.path().to_owned());
        let _first = open(Some(&at), Path::new("/x"), None).unwrap();
        assert!(open(Some(&at), Path::new("/x"), None).is_err());
    }
}
