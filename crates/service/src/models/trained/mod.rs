//! Versions made by trainings: how they are stored, how they are served, and the port that makes them.

mod served;
pub(crate) mod training;
pub(crate) mod version;

pub use served::TrainedModel;
pub use training::{Training, VersionError, VersionMaker};
pub use version::{TrainedVersion, TrainedVersions, Weights};
