//! Reads the types of inputs and outputs from an OpenAPI document.

use serde_json::Value;

/// The type of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputKind {
    Text,
    File,
    Number,
    List,
    /// A value of any type, or of one that is not distinguished here.
    Other,
}

/// The type of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputKind {
    /// A string, or strings that are parts of one text.
    Text,
    /// Numbers: one vector.
    Vector,
    /// Lists of numbers, or objects with an `embedding`.
    Vectors,
    /// One or more files.
    Files,
    /// The schema does not say.
    Any,
    /// Another type.
    Other,
}

impl OutputKind {
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Vector => "a list of numbers",
            Self::Vectors => "lists of numbers",
            Self::Files => "files",
            Self::Any => "a value of any type",
            Self::Other => "another type of value",
        }
    }
}

/// The inputs of a document, in the order of their declaration.
pub(super) fn inputs(document: &Value) -> Vec<(String, InputKind)> {
    let properties = document.pointer("/components/schemas/Input/properties");
    let Some(properties) = properties.and_then(Value::as_object) else {
        return Vec::new();
    };
    let order = |schema: &Value| schema.get("x-order").and_then(Value::as_u64);
    let mut inputs: Vec<_> = properties.iter().collect();
    inputs.sort_by_key(|(_, schema)| order(schema).unwrap_or(u64::MAX));
    inputs
        .into_iter()
        .map(|(name, schema)| (name.clone(), input_kind(resolved(document, schema))))
        .collect()
}

/// The names of the required inputs of a document.
pub(super) fn required(document: &Value) -> Vec<String> {
    let names = document.pointer("/components/schemas/Input/required");
    let names = names.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn input_kind(schema: &Value) -> InputKind {
    match type_of(schema) {
        Some("string") if is_file(schema) => InputKind::File,
        Some("string") => InputKind::Text,
        Some("integer" | "number") => InputKind::Number,
        Some("array") => InputKind::List,
        Some(_) | None => InputKind::Other,
    }
}

/// The output of a document.
pub(super) fn output(document: &Value) -> OutputKind {
    match document.pointer("/components/schemas/Output") {
        Some(schema) => output_kind(document, resolved(document, schema)),
        None => OutputKind::Any,
    }
}

fn output_kind(document: &Value, schema: &Value) -> OutputKind {
    let items = || schema.get("items").map(|items| resolved(document, items));
    match type_of(schema) {
        Some("string") if is_file(schema) => OutputKind::Files,
        Some("string") => OutputKind::Text,
        Some("array") => match items().map(|items| output_kind(document, items)) {
            Some(OutputKind::Text) => OutputKind::Text,
            Some(OutputKind::Files) => OutputKind::Files,
            Some(OutputKind::Vector | OutputKind::Vectors) => OutputKind::Vectors,
            Some(OutputKind::Other) if items().is_some_and(is_number) => OutputKind::Vector,
            Some(OutputKind::Any) | None => OutputKind::Any,
            Some(OutputKind::Other) => OutputKind::Other,
        },
        Some("object") => match schema.pointer("/properties/embedding") {
            Some(_) => OutputKind::Vector,
            // `Any` and `dict` have the same schema.
            None if schema.get("properties").is_none() => OutputKind::Any,
            None => OutputKind::Other,
        },
        Some(_) => OutputKind::Other,
        None => OutputKind::Any,
    }
}

fn is_number(schema: &Value) -> bool {
    matches!(type_of(schema), Some("integer" | "number"))
}

fn is_file(schema: &Value) -> bool {
    schema.get("format").and_then(Value::as_str) == Some("uri")
}

fn type_of(schema: &Value) -> Option<&str> {
    schema.get("type").and_then(Value::as_str)
}

/// The schema that a reference names, or that is the only one besides `null`.
fn resolved<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    // Bounded, because a document may refer to itself.
    for _ in 0..8 {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference
            .and_then(|reference| document.pointer(reference.strip_prefix('#')?))
            .or_else(|| only_choice(schema));
        match target {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

fn only_choice(schema: &Value) -> Option<&Value> {
    let choices = ["allOf", "anyOf", "oneOf"]
        .iter()
        .find_map(|key| schema.get(*key)?.as_array())?;
    let mut choices = choices
        .iter()
        .filter(|choice| type_of(choice) != Some("null"));
    let first = choices.next()?;
    choices.next().is_none().then_some(first)
}
