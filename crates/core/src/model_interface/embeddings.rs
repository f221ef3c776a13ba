//! Requests for embeddings as inputs of a model, and its output as embeddings.

use serde_json::{Value, json};

use super::schema::{InputKind, OutputKind};
use super::{MappedInput, ModelInterface, UnsupportedRequest};
use crate::inference::EmbeddingRequest;

/// The inputs for several texts come first: they need one job only.
const TEXTS: [&str; 11] = [
    "texts",
    "inputs",
    "text_batch",
    "sentences",
    "documents",
    "text",
    "input",
    "prompt",
    "sentence",
    "document",
    "query",
];
const DIMENSIONS: [&str; 3] = ["dimensions", "output_dimension", "dimension"];

impl ModelInterface {
    /// Whether the model may compute embeddings of texts.
    pub(super) fn is_embedding_model(&self) -> bool {
        (self.declares_vectors() || self.output == OutputKind::Any) && self.texts_input().is_some()
    }

    pub(super) fn declares_vectors(&self) -> bool {
        matches!(self.output, OutputKind::Vector | OutputKind::Vectors)
    }

    /// The inputs of the jobs for a request: one for all texts if the model takes a list, otherwise one
    /// for each text.
    pub fn embedding_inputs(
        &self,
        request: &EmbeddingRequest,
    ) -> Result<Vec<MappedInput>, UnsupportedRequest> {
        let Some((name, kind)) = self.texts_input().filter(|_| self.is_embedding_model()) else {
            return Err(self.unsupported("does not compute embeddings: it needs an input for texts (`texts`, `text`, `input`, `prompt`) and an output of lists of numbers"));
        };
        let dimensions = match (request.dimensions, self.first_of(&DIMENSIONS)) {
            (None, _) => None,
            (Some(length), Some((input, _))) => Some((input, length)),
            (Some(_), None) => {
                return Err(UnsupportedRequest {
                    parameter: Some("dimensions"),
                    message:
                        "the model has one length of vectors; send the request without `dimensions`"
                            .to_owned(),
                });
            }
        };
        let values: Vec<Value> = match kind {
            InputKind::List => vec![json!(request.texts)],
            // `text_batch` of public models is a JSON list in a text.
            InputKind::Text if name == "text_batch" => {
                vec![json!(json!(request.texts).to_string())]
            }
            InputKind::Text | InputKind::Other | InputKind::File | InputKind::Number => {
                request.texts.iter().map(|text| json!(text)).collect()
            }
        };
        Ok(values
            .into_iter()
            .map(|value| {
                let mut mapped = MappedInput::default();
                mapped.put("input", name, value);
                if let Some((input, length)) = dimensions {
                    mapped.put("dimensions", input, json!(length));
                }
                mapped
            })
            .collect())
    }

    fn texts_input(&self) -> Option<(&'static str, InputKind)> {
        let takes_texts =
            |kind: InputKind| matches!(kind, InputKind::Text | InputKind::List | InputKind::Other);
        let lists = TEXTS.iter().find_map(|name| {
            let kind = self.kind_of(name)?;
            let is_batch = kind == InputKind::List || *name == "text_batch";
            is_batch.then_some((*name, kind))
        });
        lists.or_else(|| self.first_of(&TEXTS).filter(|(_, kind)| takes_texts(*kind)))
    }
}

/// The vectors of an output: a list of numbers, a list of such lists, or objects that have them as
/// `embedding` or `embeddings`. `None` if the output is something else.
pub fn vectors_of(output: &Value) -> Option<Vec<Vec<f32>>> {
    match output {
        Value::Array(items) if items.first().is_some_and(Value::is_number) => {
            Some(vec![vector(items)?])
        }
        Value::Array(items) => {
            let each: Option<Vec<Vec<Vec<f32>>>> = items.iter().map(vectors_of).collect();
            Some(each?.into_iter().flatten().collect())
        }
        Value::Object(fields) => {
            let value = ["embedding", "embeddings", "vectors", "data"]
                .iter()
                .find_map(|name| fields.get(*name))?;
            vectors_of(value)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn vector(numbers: &[Value]) -> Option<Vec<f32>> {
    let number = |value: &Value| value.as_f64().map(|number| number as f32);
    numbers.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::super::ModelTask;
    use super::*;

    fn model(inputs: Value) -> ModelInterface {
        let vector = json!({"type": "array", "items": {"type": "number"}});
        let schemas =
            json!({"Input": {"properties": inputs}, "Output": {"type": "array", "items": vector}});
        ModelInterface::read(&json!({"components": {"schemas": schemas}}))
    }

    fn request(texts: &[&str]) -> EmbeddingRequest {
        EmbeddingRequest {
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            dimensions: None,
        }
    }

    fn inputs(model: &ModelInterface, texts: &[&str]) -> Vec<Value> {
        let mapped = model.embedding_inputs(&request(texts)).unwrap();
        mapped
            .into_iter()
            .map(|mapped| Value::Object(mapped.input))
            .collect()
    }

    #[test]
    fn a_list_is_one_job_and_a_text_is_one_job_each() {
        let list = json!({"type": "array", "items": {"type": "string"}});
        let string = json!({"type": "string"});
        let of_lists = model(json!({"texts": list, "text": string}));
        assert_eq!(of_lists.task(), ModelTask::TextEmbeddings);
        assert_eq!(
            inputs(&of_lists, &["a", "b"]),
            [json!({"texts": ["a", "b"]})]
        );
        let of_texts = model(json!({"text": string}));
        assert_eq!(
            inputs(&of_texts, &["a", "b"]),
            [json!({"text": "a"}), json!({"text": "b"})]
        );
        let batch = model(json!({"text": string, "text_batch": string}));
        assert_eq!(inputs(&batch, &["a"]), [json!({"text_batch": "[\"a\"]"})]);
    }

    #[test]
    fn a_model_without_texts_or_dimensions_is_refused() {
        let error = model(json!({"image": {"type": "string", "format": "uri"}}))
            .embedding_inputs(&request(&["a"]))
            .unwrap_err();
        assert!(error.message.contains("`image`"), "{error}");
        let wanted = EmbeddingRequest {
            dimensions: Some(8),
            ..request(&["a"])
        };
        let error = model(json!({"text": {"type": "string"}})).embedding_inputs(&wanted);
        assert_eq!(error.unwrap_err().parameter, Some("dimensions"));
        let with_dimensions =
            model(json!({"text": {"type": "string"}, "dimensions": {"type": "integer"}}));
        let mapped = with_dimensions.embedding_inputs(&wanted).unwrap();
        assert_eq!(mapped[0].input["dimensions"], 8);
    }

    #[test]
    fn vectors_are_found_in_the_outputs_of_public_models() {
        for (output, expected) in [
            (json!([1, 2.5]), Some(vec![vec![1.0, 2.5]])),
            (json!([[1], [2]]), Some(vec![vec![1.0], vec![2.0]])),
            (
                json!([{"embedding": [1]}, {"embedding": [2]}]),
                Some(vec![vec![1.0], vec![2.0]]),
            ),
            (json!({"embeddings": [[1]]}), Some(vec![vec![1.0]])),
            (json!([]), Some(vec![])),
            (json!([1, "a"]), None),
            (json!("a"), None),
            (json!({"text": "a"}), None),
        ] {
            assert_eq!(vectors_of(&output), expected, "{output}");
        }
    }
}
