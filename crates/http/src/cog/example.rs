//! An example request for a model, generated from its schema: the terminal and `/docs` show it.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::example_text::example_text;

/// A small valid file of each kind, as a data URI, and the words by which an input asks for it: in the
/// media type that it accepts, or in its name.
const FILES: [(&str, &[&str]); 8] = [
    (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAD0lEQVR42mP4jwMwDC0JALoev0GJ6La7AAAAAElFTkSuQmCC",
        &[
            "image", "img", "photo", "picture", "mask", "frame", "png", "jpg",
        ],
    ),
    (
        "data:audio/wav;base64,UklGRjQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YRAAAAAAAAAAAAAAAAAAAAAAAAAA",
        &["audio", "wav", "speech", "voice", "sound", "song", "music"],
    ),
    // It has no tracks.
    (
        "data:video/mp4;base64,AAAAGGZ0eXBpc29tAAACAGlzb21tcDQxAAAAdG1vb3YAAABsbXZoZAAAAAAAAAAAAAAAAAAAA+gAAAAAAAEAAAEAAAAAAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAQAAAAAAAAAAAAAAAAAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE=",
        &["video", "mp4", "movie"],
    ),
    (
        "data:application/zip;base64,UEsFBgAAAAAAAAAAAAAAAAAAAAAAAA==",
        &["zip", "archive"],
    ),
    (
        "data:application/pdf;base64,JVBERi0xLjQKMSAwIG9iajw8L1R5cGUvQ2F0YWxvZy9QYWdlcyAyIDAgUj4+IGVuZG9iagoyIDAgb2JqPDwvVHlwZS9QYWdlcy9LaWRzWzMgMCBSXS9Db3VudCAxPj4gZW5kb2JqCjMgMCBvYmo8PC9UeXBlL1BhZ2UvUGFyZW50IDIgMCBSL01lZGlhQm94WzAgMCA5IDldPj4gZW5kb2JqCnhyZWYKMCA0CjAwMDAwMDAwMDAgNjU1MzUgZiAKMDAwMDAwMDAwOSAwMDAwMCBuIAowMDAwMDAwMDUzIDAwMDAwIG4gCjAwMDAwMDAxMDMgMDAwMDAgbiAKdHJhaWxlcjw8L1NpemUgNC9Sb290IDEgMCBSPj4Kc3RhcnR4cmVmCjE2MwolJUVPRgo=",
        &["pdf", "document"],
    ),
    ("data:application/json;base64,e30=", &["json"]),
    ("data:text/csv;base64,bmFtZQp3b3JsZAo=", &["csv", "table"]),
    ("data:text/plain;base64,aGVsbG8K", &[]),
];

/// How deep the schema of an input is followed. References of a backend's document may form cycles.
const MAX_DEPTH: usize = 16;

/// The file with the example job of a Runpod handler, next to its script.
const TEST_INPUT: &str = "test_input.json";

/// An example request.
#[derive(Debug, Clone, PartialEq)]
pub struct ExampleRequest {
    /// The path below the URL of the model.
    pub path: &'static str,
    /// The body.
    pub body: Value,
}

impl ExampleRequest {
    /// An example for the model with this OpenAPI document, whose code is in `folder`: its required inputs
    /// with example values. For a Runpod handler, whose inputs are not known, it is the job in
    /// `test_input.json`, if there is one.
    pub fn new(document: &Value, folder: &Path) -> Self {
        Self::with_test_input(document, || {
            let text = std::fs::read(folder.join(TEST_INPUT)).ok()?;
            let job: Value = serde_json::from_slice(&text).ok()?;
            job.get("input").cloned()
        })
    }

    /// An example for a model whose code is on another machine.
    pub fn of_remote_model(document: &Value) -> Self {
        Self::with_test_input(document, || None)
    }

    fn with_test_input(document: &Value, test_input: impl FnOnce() -> Option<Value>) -> Self {
        let is_handler = document.pointer("/paths/~1runsync").is_some();
        if !is_handler {
            return Self {
                path: "/predictions",
                body: json!({ "input": example_input(document) }),
            };
        }
        let input = test_input().unwrap_or_else(|| json!({ "name": "world" }));
        Self {
            path: "/runsync",
            body: json!({ "input": input }),
        }
    }

    /// A command that sends the request to the model at `base`. `options` are further options of curl.
    pub fn curl(&self, base: &str, options: &str) -> String {
        let body = self.body.to_string().replace('\'', "'\\''");
        format!(
            "curl -s {options}{base}{} -H 'content-type: application/json' -d '{body}'",
            self.path
        )
    }
}

/// The schema that a schema of an OpenAPI document refers to, or the schema itself.
pub fn resolve_reference<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    schema
        .pointer("/allOf/0/$ref")
        .or_else(|| schema.get("$ref"))
        .and_then(Value::as_str)
        .and_then(|text| text.strip_prefix('#'))
        .and_then(|pointer| document.pointer(pointer))
        .unwrap_or(schema)
}

/// The required inputs with example values.
fn example_input(document: &Value) -> Value {
    let input = document.pointer("/components/schemas/Input");
    let required = input
        .and_then(|input| input.get("required")?.as_array())
        .map_or(&[][..], Vec::as_slice);
    let one = |name: &Value| {
        let name = name.as_str()?;
        let property = input?.get("properties")?.get(name)?;
        Some((
            name.to_owned(),
            example_value(document, name, property, MAX_DEPTH),
        ))
    };
    Value::Object(required.iter().filter_map(one).collect())
}

/// An example of the value of an input; `depth` is how many schemas inside of this one are followed.
fn example_value(document: &Value, name: &str, property: &Value, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else {
        return Value::Null;
    };
    let schema = resolve_reference(document, property);
    if let Some(first) = schema.pointer("/enum/0") {
        return first.clone();
    }
    if let Some(one) = schema.pointer("/anyOf/0") {
        return example_value(document, name, one, depth);
    }
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    match (text("type"), text("format")) {
        (Some("string"), Some("uri")) => example_file(name, text("x-cog-accept")).into(),
        (Some("integer" | "number"), _) => example_number(schema),
        (Some("boolean"), _) => true.into(),
        (Some("array"), _) => {
            let items = schema.get("items").into_iter();
            items
                .map(|items| example_value(document, name, items, depth))
                .collect()
        }
        (Some("object"), _) => Value::Object(Map::new()),
        _ => example_text(schema).into(),
    }
}

/// 1, or the bound next to it.
fn example_number(schema: &Value) -> Value {
    let bound = |key: &str, is_outside: fn(f64) -> bool| {
        let bound = schema.get(key)?;
        bound.as_f64().filter(|number| is_outside(*number))?;
        Some(bound.clone())
    };
    bound("minimum", |minimum| minimum > 1.0)
        .or_else(|| bound("maximum", |maximum| maximum < 1.0))
        .unwrap_or_else(|| 1.into())
}

/// A small valid file for an input with this name that accepts these media types.
fn example_file(name: &str, accepts: Option<&str>) -> &'static str {
    let asked = accepts.unwrap_or(name).to_ascii_lowercase();
    let matches = |(_, words): &&(&str, &[&str])| words.iter().any(|word| asked.contains(word));
    let text = FILES.last().map_or("", |(uri, _)| uri);
    FILES.iter().find(matches).map_or(text, |(uri, _)| uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_refers_to_itself_has_an_example() {
        let cycle = json!({"type": "array", "items": {"$ref": "#/components/schemas/cycle"}});
        let endless = json!({"anyOf": [{"$ref": "#/components/schemas/endless"}]});
        let properties = json!({"a": cycle, "b": endless});
        let input = json!({"required": ["a", "b"], "properties": properties});
        let schemas = json!({"cycle": cycle, "endless": endless, "Input": input});
        let document = json!({"components": {"schemas": schemas}});
        let request = ExampleRequest::of_remote_model(&document);
        assert!(request.body["input"]["a"].is_array());
        assert!(request.body["input"]["b"].is_null());
    }

    fn document() -> Value {
        json!({"components": {"schemas": {
            "style": {"type": "string", "enum": ["1", "2"]},
            "Input": {
                "required": ["text", "n", "below", "style", "key", "size", "photo", "data", "clip", "film", "many"],
                "properties": {
                    "text": {"type": "string"},
                    "n": {"type": "integer", "minimum": 3},
                    "below": {"type": "number", "maximum": 0.5},
                    "style": {"allOf": [{"$ref": "#/components/schemas/style"}]},
                    "key": {"type": "string", "minLength": 8},
                    "size": {"type": "string", "pattern": "^[0-9]+x[0-9]+$"},
                    "photo": {"type": "string", "format": "uri"},
                    "data": {"type": "string", "format": "uri"},
                    "clip": {"type": "string", "format": "uri", "x-cog-accept": "audio/*"},
                    "film": {"type": "string", "format": "uri", "x-cog-accept": "video/mp4"},
                    "many": {"type": "array", "items": {"type": "string", "format": "uri"}},
                    "optional": {"type": "string"},
                },
            },
        }}})
    }

    #[test]
    fn an_example_has_valid_values_for_the_required_inputs() {
        let request = ExampleRequest::new(&document(), Path::new("/nonexistent"));
        let text = FILES[7].0;
        assert_eq!(request.path, "/predictions");
        assert_eq!(
            request.body,
            json!({"input": {
                "text": "world", "n": 3, "below": 0.5, "style": "1", "key": "worldwor", "size": "512x512",
                "photo": FILES[0].0, "data": text, "clip": FILES[1].0, "film": FILES[2].0, "many": [text],
            }})
        );
    }

    #[test]
    fn the_example_of_a_handler_is_its_test_input() {
        let document = json!({"paths": {"/predictions": {}, "/runsync": {}}});
        let folder = tempfile::tempdir().unwrap();
        let request = || ExampleRequest::new(&document, folder.path());
        assert_eq!(request().path, "/runsync");
        assert_eq!(request().body, json!({"input": {"name": "world"}}));
        std::fs::write(
            folder.path().join(TEST_INPUT),
            r#"{"id": "x", "input": {"a": 1}}"#,
        )
        .unwrap();
        assert_eq!(request().body, json!({"input": {"a": 1}}));
    }

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let request = ExampleRequest {
            path: "/predictions",
            body: json!({"input": {"text": "it's"}}),
        };
        assert_eq!(
            request.curl("http://host", "-k "),
            r#"curl -s -k http://host/predictions -H 'content-type: application/json' -d '{"input":{"text":"it'\''s"}}'"#
        );
    }
}
