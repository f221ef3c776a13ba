//! Trained versions: how they are stored, created and served.

mod served;
mod stored;
pub(crate) mod training;
mod updater;

pub use served::TrainedModel;
pub use stored::{TrainedVersions, WeightsSource, weights_path};
pub use training::{Training, VersionCreation, VersionError, VersionMaker};
pub use updater::{SourceChanges, TrainedServing, TrainedUpdater};
