//! Parses an input into a tree of limited size.
//!
//! A few bytes of JSON such as `{"":0}` take hundreds of bytes in memory, so a limit on the text
//! does not limit the tree. Duplicate names in an object are refused: the validator and the model
//! could read different values.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The memory limit of one tree in bytes, without its strings.
const MAX_COST: usize = 128 * 1024 * 1024;
/// The cost of a value in bytes.
const VALUE_COST: usize = 32;
/// The cost of an array without its values.
const ARRAY_COST: usize = 128;
/// The cost of an object without its values.
const OBJECT_COST: usize = 700;

/// Parses one JSON text.
pub(super) fn read(json: &[u8]) -> Result<Value, serde_json::Error> {
    let budget = Cell::new(MAX_COST);
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = Tree { budget: &budget }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Tree<'a> {
    budget: &'a Cell<usize>,
}

impl Tree<'_> {
    fn charge<E: Error>(self, cost: usize) -> Result<(), E> {
        let remaining = self.budget.get().checked_sub(cost);
        self.budget.set(remaining.ok_or_else(|| {
            E::custom("the input has too many values: they would take more than 128 MiB of memory")
        })?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.charge(ARRAY_COST)?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            self.charge(VALUE_COST)?;
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.charge(OBJECT_COST)?;
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            self.charge(2 * VALUE_COST)?;
            let value = entries.next_value_seed(self)?;
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!(
                    "duplicate name {name:?} in an object"
                )));
            }
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_matches_serde_json() {
        for json in [
            "null",
            " [1, -2, 3.5, 1e300, true] ",
            r#"{"a":{"b":[{}, [], "é\n"]},"c":18446744073709551615}"#,
            "1e2",
            "123456789012345678901234567890",
        ] {
            assert_eq!(
                read(json.as_bytes()).unwrap(),
                serde_json::from_str::<Value>(json).unwrap(),
                "{json}"
            );
        }
        for invalid in [
            "",
            "[1",
            "{}x",
            "nul",
            "[1e400]",
            r#""\ud800""#,
            &"[".repeat(1000),
        ] {
            assert!(read(invalid.as_bytes()).is_err(), "{invalid}");
        }
    }

    #[test]
    fn duplicate_names_are_refused() {
        for duplicate in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"x":{"b":1,"c":2,"b":3}}]"#,
        ] {
            assert!(
                read(duplicate.as_bytes())
                    .unwrap_err()
                    .to_string()
                    .contains("duplicate name"),
                "{duplicate}"
            );
        }
    }

    #[test]
    fn too_many_values_are_refused() {
        let many = |value: &str, count| format!("[{}]", vec![value; count].join(","));
        assert!(read(many("{}", 100_000).as_bytes()).is_ok());
        assert!(read(many("0", 2_000_000).as_bytes()).is_ok());
        for (value, count) in [("{}", 250_000), ("[]", 1_000_000)] {
            assert!(
                read(many(value, count).as_bytes())
                    .unwrap_err()
                    .to_string()
                    .contains("too many values"),
                "{value}"
            );
        }
    }
}
