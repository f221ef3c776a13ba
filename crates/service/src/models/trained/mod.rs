//! Trained versions: how they are stored and served, and the port that creates them.

mod served;
pub(crate) mod training;
pub(crate) mod version;

pub use served::TrainedModel;
pub use training::{Training, VersionError, VersionMaker};
pub use version::{TrainedVersion, TrainedVersions, Weights};
