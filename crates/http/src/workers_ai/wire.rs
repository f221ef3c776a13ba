//! The documents of the Workers AI API.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_core::text_generation::Usage;

/// What every answer that is not a stream or a file is in.
#[derive(Debug, Serialize)]
pub(super) struct Envelope<T> {
    pub(super) result: Option<T>,
    pub(super) success: bool,
    pub(super) errors: Vec<ErrorItem>,
    pub(super) messages: [(); 0],
}

impl<T: Serialize> Envelope<T> {
    /// The JSON of the envelope of a result.
    pub(super) fn of(result: T) -> bytes::Bytes {
        let envelope = Self {
            result: Some(result),
            success: true,
            errors: Vec::new(),
            messages: [],
        };
        serde_json::to_vec(&envelope)
            .expect("answers have string keys")
            .into()
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ErrorItem {
    pub(crate) code: u32,
    pub(crate) message: String,
}

/// A generated text, or a part of one.
#[derive(Debug, Serialize)]
pub(super) struct TextResult<'a> {
    pub(super) response: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
}

/// Embeddings with the number of vectors and their length.
#[derive(Debug, Serialize)]
pub(super) struct EmbeddingResult<'a> {
    pub(super) shape: [usize; 2],
    pub(super) data: &'a [Vec<f32>],
}

/// A page of the catalogue.
#[derive(Debug, Serialize)]
pub(super) struct ModelPage {
    pub(super) result: Vec<ModelItem>,
    pub(super) success: bool,
    pub(super) errors: [(); 0],
    pub(super) messages: [(); 0],
    pub(super) result_info: PageInfo,
}

#[derive(Debug, Serialize)]
pub(super) struct PageInfo {
    pub(super) count: usize,
    pub(super) page: usize,
    pub(super) per_page: usize,
    pub(super) total_count: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct ModelItem {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) source: u8,
    pub(super) task: TaskItem,
    pub(super) tags: [(); 0],
    pub(super) properties: [(); 0],
    pub(super) created_at: String,
}

#[derive(Debug, Serialize)]
pub(super) struct TaskItem {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) description: &'static str,
}

/// The schemas of a model.
#[derive(Debug, Serialize)]
pub(super) struct ModelSchemas {
    pub(super) input: Value,
    pub(super) output: Value,
}

/// A batch that has not ended.
#[derive(Debug, Serialize)]
pub(super) struct BatchStatus<'a> {
    pub(super) status: &'static str,
    pub(super) request_id: &'a str,
    pub(super) model: &'a str,
}

/// A batch that has ended.
#[derive(Debug, Serialize)]
pub(super) struct BatchResult {
    pub(super) responses: Vec<BatchResponse>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Usage>,
}

/// The result of one request of a batch.
#[derive(Debug, Serialize)]
pub(super) struct BatchResponse {
    pub(super) id: usize,
    pub(super) result: Option<Value>,
    pub(super) success: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) errors: Vec<ErrorItem>,
    pub(super) external_reference: Option<Value>,
}
