//! The fields of a JSON object that are read one by one, so that an error names its field.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The fields of an object by name, each not parsed yet. A name occurs once.
#[derive(Debug, Default)]
pub(crate) struct JsonFields<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'a> JsonFields<'a> {
    /// The value of a field; `None` if it is absent or `null`. The error says why it has the wrong type.
    pub(crate) fn get<T: Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, String> {
        match self.raw(name) {
            None => Ok(None),
            Some(raw) => serde_json::from_str(raw.get())
                .map(Some)
                .map_err(|error| without_position(&error)),
        }
    }

    /// The JSON of a field; `None` if it is absent or `null`.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let raw = self.0.get(name)?;
        (raw.get() != "null").then_some(*raw)
    }

    /// Whether a field is present and has another value than `null`, `false`, `[]` or `{}`.
    pub(crate) fn is_set(&self, name: &str) -> bool {
        let compact = |raw: &RawValue| -> String {
            let characters = raw.get().chars().take(16);
            characters.filter(|c| !c.is_ascii_whitespace()).collect()
        };
        self.raw(name)
            .is_some_and(|raw| !matches!(compact(raw).as_str(), "false" | "[]" | "{}"))
    }

    /// The names and values, without those that are `null`.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        let fields = self.0.iter().map(|(name, raw)| (name.as_ref(), *raw));
        fields.filter(|(_, raw)| raw.get() != "null")
    }
}

/// The message of an error without its position, which is relative to the field.
pub(crate) fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    message
        .strip_suffix(&position)
        .unwrap_or(&message)
        .to_owned()
}

impl<'de> Deserialize<'de> for JsonFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldVisitor)
    }
}

/// A name that borrows from the text where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

struct FieldVisitor;

impl<'de> Visitor<'de> for FieldVisitor {
    type Value = JsonFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((FieldName(name), value)) = map.next_entry::<FieldName<'de>, _>()? {
            // Two programs may read a different one of both.
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            fields.insert(name, value);
        }
        Ok(JsonFields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_one_by_one() {
        let fields: JsonFields<'_> =
            serde_json::from_str(r#"{"n": 1, "none": null, "é\n": [ ], "t": true}"#).unwrap();
        assert_eq!(fields.get::<u8>("n"), Ok(Some(1)));
        assert_eq!(fields.get::<u8>("none"), Ok(None));
        assert_eq!(fields.get::<u8>("absent"), Ok(None));
        let error = fields.get::<String>("n").unwrap_err();
        assert_eq!(error, "invalid type: integer `1`, expected a string");
        assert!(fields.is_set("t") && !fields.is_set("é\n") && !fields.is_set("none"));
        assert_eq!(fields.iter().count(), 3);
    }

    #[test]
    fn a_repeated_field_is_an_error() {
        let error = serde_json::from_str::<JsonFields<'_>>(r#"{"a": 1, "\u0061": 2}"#).unwrap_err();
        assert!(
            error.to_string().starts_with("duplicate field `a`"),
            "{error}"
        );
    }
}
