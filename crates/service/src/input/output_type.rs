//! The type that a model declares for its output. Values of another type are passed on, as Cog does,
//! with a warning. Only the outermost type is compared: it is known from the first byte of the JSON.

use serde_json::Value;

/// A type of JSON values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonType {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
}

/// The declared types of the values that a model returns and yields; `None` accepts every value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OutputTypes {
    pub(crate) returned: Option<JsonType>,
    pub(crate) yielded: Option<JsonType>,
}

impl OutputTypes {
    /// Reads the schema of an output.
    pub(crate) fn of(schema: &Value) -> Self {
        let is_iterator =
            schema.get("x-cog-array-type").and_then(Value::as_str) == Some("iterator");
        Self {
            returned: JsonType::of_schema(schema),
            yielded: schema
                .get("items")
                .filter(|_| is_iterator)
                .and_then(JsonType::of_schema),
        }
    }
}

impl JsonType {
    fn of_schema(schema: &Value) -> Option<Self> {
        Some(match schema.get("type")?.as_str()? {
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "array" => Self::Array,
            // Without properties it may be `Any`, which has the same schema as `dict`.
            "object" if schema.get("properties").is_some() => Self::Object,
            _ => return None,
        })
    }

    /// The type of a JSON text; `None` for `null`, which every model may return.
    fn of_json(json: &[u8]) -> Option<Self> {
        Some(match json.first()? {
            b'"' => Self::String,
            b'{' => Self::Object,
            b'[' => Self::Array,
            b't' | b'f' => Self::Boolean,
            b'-' | b'0'..=b'9' if json.iter().any(|byte| b".eE".contains(byte)) => Self::Number,
            b'-' | b'0'..=b'9' => Self::Integer,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::String => "a string",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Boolean => "a boolean",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }

    /// The warning about a value of another type.
    pub(crate) fn mismatch(self, json: &[u8]) -> Option<String> {
        let actual = Self::of_json(json)?;
        let matches = actual == self || (actual, self) == (Self::Integer, Self::Number);
        (!matches).then(|| {
            format!(
                "the output is {}, but the declared type is {}",
                actual.name(),
                self.name()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_of_another_type_has_a_warning() {
        for (schema, value, warns) in [
            ("integer", "1", false),
            ("integer", "-1", false),
            ("integer", "\"1\"", true),
            ("integer", "1.0", true),
            ("integer", "true", true),
            ("number", "1", false),
            ("number", "1e3", false),
            ("string", "\"e.\"", false),
            ("string", "[1]", true),
            ("boolean", "false", false),
            ("array", "[]", false),
            ("array", "{}", true),
            ("object", "1", false),
            ("integer", "null", false),
            ("unknown", "1", false),
        ] {
            let types = OutputTypes::of(&json!({"type": schema}));
            let warning = types
                .returned
                .and_then(|kind| kind.mismatch(value.as_bytes()));
            assert_eq!(warning.is_some(), warns, "{schema} {value}");
        }
        assert_eq!(
            JsonType::Integer.mismatch(b"\"x\"").as_deref(),
            Some("the output is a string, but the declared type is an integer")
        );
        assert_eq!(OutputTypes::of(&json!({})), OutputTypes::default());
        let model = OutputTypes::of(&json!({"type": "object", "properties": {}}));
        assert_eq!(model.returned, Some(JsonType::Object));
        assert_eq!(JsonType::Object.mismatch(b"{}"), None);
    }

    #[test]
    fn the_values_of_an_iterator_have_a_type_of_their_own() {
        let iterator =
            json!({"type": "array", "items": {"type": "string"}, "x-cog-array-type": "iterator"});
        let list = json!({"type": "array", "items": {"type": "string"}});
        assert_eq!(OutputTypes::of(&iterator).yielded, Some(JsonType::String));
        assert_eq!(OutputTypes::of(&list).yielded, None);
    }
}
