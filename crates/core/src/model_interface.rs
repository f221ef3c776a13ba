//! What a model can be asked for, read from the schema of its inputs and output.
//!
//! A Cog model declares named inputs and no task. A model with an input `prompt` or `messages` and an
//! output of text generates text; a model with an input for texts and an output of vectors embeds them.
//! The other parameters of a request go to the inputs with the names that public models use for them.

mod embeddings;
mod schema;
mod text;

use serde_json::{Map, Value};

pub use embeddings::vectors_of;
use schema::{InputKind, OutputKind};
pub use text::text_of;

/// What a model can be asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelInterface {
    /// The inputs by name, in the order of their declaration.
    inputs: Vec<(String, InputKind)>,
    /// The names of the inputs that a job must have.
    required: Vec<String>,
    output: OutputKind,
}

/// What a model does, as far as its schema says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelTask {
    /// It answers a conversation or continues a prompt.
    TextGeneration,
    /// It computes embeddings of texts.
    TextEmbeddings,
    /// Something else.
    Other,
}

/// The input of a model for a request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MappedInput {
    /// The values by the name of the input.
    pub input: Map<String, Value>,
    /// The parameters of the request whose input has another name: that name and the parameter.
    pub renamed: Vec<(String, &'static str)>,
    /// What the client should know: parameters that the model does not have.
    pub warnings: Vec<String>,
    /// Whether the input limits the number of tokens of the text.
    pub limits_tokens: bool,
}

impl MappedInput {
    fn put(&mut self, parameter: &'static str, input: &str, value: Value) {
        if parameter != input {
            self.renamed.push((input.to_owned(), parameter));
        }
        self.input.insert(input.to_owned(), value);
    }

    /// The parameter of the request that is the input with this name.
    pub fn parameter_of<'a>(&self, input: &'a str) -> &'a str {
        let renamed = self.renamed.iter().find(|(name, _)| name == input);
        renamed.map_or(input, |(_, parameter)| parameter)
    }
}

/// Why a model cannot be asked for something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UnsupportedRequest {
    /// The parameter of the request that the model does not support, if it is a single one.
    pub parameter: Option<&'static str>,
    /// The message for the client.
    pub message: String,
}

impl ModelInterface {
    /// Reads the OpenAPI document of a model.
    pub fn read(document: &Value) -> Self {
        Self {
            inputs: schema::inputs(document),
            required: schema::required(document),
            output: schema::output(document),
        }
    }

    /// What the model does.
    pub fn task(&self) -> ModelTask {
        if self.is_text_model() {
            ModelTask::TextGeneration
        } else if self.declares_vectors() && self.is_embedding_model() {
            ModelTask::TextEmbeddings
        } else {
            ModelTask::Other
        }
    }

    /// Whether a prompt or a conversation is all that a job must have.
    pub fn needs_only_text(&self) -> bool {
        let mut required = self.required.iter();
        required.all(|name| text::is_text_input(name))
    }

    /// Whether the model has an input with this name.
    pub fn has_input(&self, name: &str) -> bool {
        self.kind_of(name).is_some()
    }

    /// Whether the output is one or more files.
    pub fn returns_files(&self) -> bool {
        self.output == OutputKind::Files
    }

    /// The only input that is a file, if there is exactly one.
    pub fn file_input(&self) -> Option<&str> {
        let mut files = self
            .inputs
            .iter()
            .filter(|(_, kind)| *kind == InputKind::File);
        let first = files.next()?;
        files.next().is_none().then_some(&first.0)
    }

    fn kind_of(&self, name: &str) -> Option<InputKind> {
        let found = self.inputs.iter().find(|(input, _)| input == name)?;
        Some(found.1)
    }

    /// The first of these inputs that the model has.
    fn first_of(&self, names: &[&'static str]) -> Option<(&'static str, InputKind)> {
        names
            .iter()
            .find_map(|name| Some((*name, self.kind_of(name)?)))
    }

    /// A sentence about the inputs and the output, for errors.
    fn description(&self) -> String {
        let names: Vec<String> = self
            .inputs
            .iter()
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        let inputs = match names.as_slice() {
            [] => "no declared inputs".to_owned(),
            names => format!("the inputs {}", names.join(", ")),
        };
        format!(
            "it takes {inputs} and returns {}",
            self.output.description()
        )
    }
}
