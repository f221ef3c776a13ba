//! Trained versions on a director: their jobs wait in a queue of their source, and the lease of a job says which
//! version it is for.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::chain;
use tidegate_core::trained_version::{TrainedVersion, Weights};
use tidegate_service::{ServedVersion, WeightsSource, weights_path};

use crate::api_calls::ApiCalls;

/// Serves the trained versions that jobs need.
#[async_trait]
pub trait TrainedModels: Send + Sync {
    /// A trained version with the code of this version of its source. It is loaded when a job starts. The error
    /// is a message for the client.
    async fn serve(
        &self,
        trained: &TrainedVersion,
        source: &ServedVersion,
    ) -> Result<Arc<ServedVersion>, String>;
}

/// The weights of trained versions, from the API.
pub struct ApiWeights(Arc<dyn ApiCalls>);

impl ApiWeights {
    /// Downloads weights with these calls.
    pub fn new(api: Arc<dyn ApiCalls>) -> Self {
        Self(api)
    }
}

#[async_trait]
impl WeightsSource for ApiWeights {
    /// Retried without limit, as the input files of a job are.
    async fn copy_weights(&self, trained: &TrainedVersion, folder: &Path) -> Result<(), String> {
        if let Weights::Text(_) = &trained.weights {
            return Ok(());
        }
        let to = weights_path(&trained.weights, folder);
        loop {
            match self.0.download_weights(&trained.key(), &to).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err("the API does not have the weights any more".to_owned()),
                Err(error) if error.is_permanent() => return Err(chain(&error).to_string()),
                Err(_) => tokio::time::sleep(self.0.pause()).await,
            }
        }
    }
}
