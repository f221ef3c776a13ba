//! How much GPU memory models have used, by version and kind of GPU.
//!
//! Kept in a file of the data directory if there is one, so that a restart does not measure again.

use std::collections::VecDeque;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The most requirements that are kept; the oldest are dropped.
const MAX_KEPT: usize = 1000;

/// The most memory that the versions of models have used on one GPU.
#[derive(Debug, Default)]
pub(crate) struct MeasuredRequirements {
    /// The newest are last.
    known: VecDeque<MeasuredRequirement>,
    file: Option<PathBuf>,
}

/// What one version has used on one kind of GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct MeasuredRequirement {
    model: String,
    version: String,
    gpu: String,
    bytes: u64,
}

impl MeasuredRequirements {
    /// Those of a file, which need not exist.
    pub(crate) fn open(file: Option<PathBuf>) -> Self {
        let read = |path: &PathBuf| {
            match std::fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
                tracing::warn!(path = %path.display(), %error, "failed to read the GPU memory of models, measuring again");
                VecDeque::new()
            }),
            Err(_) => VecDeque::new(),
        }
        };
        Self {
            known: file.as_ref().map(read).unwrap_or_default(),
            file,
        }
    }

    /// What a version has used on a kind of GPU.
    pub(crate) fn of_version(&self, model: &str, version: &str, gpu: &str) -> Option<u64> {
        let known = self.of_model(model, gpu);
        let known = known.filter(|known| known.version == version);
        known.map(|known| known.bytes).next_back()
    }

    /// What the latest measured version of a model has used on a kind of GPU.
    pub(crate) fn of_any_version(&self, model: &str, gpu: &str) -> Option<u64> {
        self.of_model(model, gpu)
            .map(|known| known.bytes)
            .next_back()
    }

    fn of_model(
        &self,
        model: &str,
        gpu: &str,
    ) -> impl DoubleEndedIterator<Item = &MeasuredRequirement> {
        let is_it = move |known: &&MeasuredRequirement| known.model == model && known.gpu == gpu;
        self.known.iter().filter(is_it)
    }

    /// Records a measurement; only one above the known value counts.
    pub(crate) fn record(&mut self, model: &str, version: &str, gpu: &str, bytes: u64) {
        if self.of_version(model, version, gpu) >= Some(bytes) {
            return;
        }
        let is_other = |known: &MeasuredRequirement| {
            (&*known.model, &*known.version, &*known.gpu) != (model, version, gpu)
        };
        self.known.retain(is_other);
        self.known.push_back(MeasuredRequirement {
            model: model.to_owned(),
            version: version.to_owned(),
            gpu: gpu.to_owned(),
            bytes,
        });
        if self.known.len() > MAX_KEPT {
            self.known.pop_front();
        }
        self.save();
    }

    /// Called in the thread of the driver, which may block.
    fn save(&self) {
        let Some(file) = &self.file else { return };
        let text = serde_json::to_vec_pretty(&self.known).expect("the keys are strings");
        let new = file.with_extension("new");
        let saved = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, file));
        if let Err(error) = saved {
            tracing::warn!(path = %file.display(), %error, "failed to save the GPU memory of models");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_measurement_of_a_version_survives_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("gpu-memory.json");
        let mut before = MeasuredRequirements::open(Some(file.clone()));
        before.record("m", "1", "H200", 5);
        before.record("m", "1", "H200", 9);
        before.record("m", "1", "H200", 7);
        before.record("m", "2", "H200", 4);
        before.record("m", "1", "A100", 3);
        let after = MeasuredRequirements::open(Some(file));
        assert_eq!(after.of_version("m", "1", "H200"), Some(9));
        assert_eq!(after.of_version("m", "3", "H200"), None);
        assert_eq!(after.of_any_version("m", "H200"), Some(4));
        assert_eq!(after.of_any_version("other", "H200"), None);
    }

    #[test]
    fn a_file_that_is_broken_is_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("gpu-memory.json");
        std::fs::write(&file, "{").unwrap();
        let mut known = MeasuredRequirements::open(Some(file.clone()));
        known.record("m", "1", "H200", 5);
        let again = MeasuredRequirements::open(Some(file));
        assert_eq!(again.of_version("m", "1", "H200"), Some(5));
    }
}
