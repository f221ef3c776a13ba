//! Reading an input into a tree, with a bound on what the tree costs.
//!
//! A few bytes of JSON such as `{"":0}` become hundreds in memory, so a bound on the text is no bound on
//! the tree. And a name that comes twice in an object is refused: whoever checks and whoever uses the
//! input could each believe another of the two.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The most that the tree of one input may cost beside its texts, in bytes.
const MAX_COST: usize = 128 * 1024 * 1024;
/// What each value costs.
const VALUE: usize = 32;
/// What an array costs before its values.
const ARRAY: usize = 128;
/// What an object costs before its values.
const OBJECT: usize = 700;

/// Reads one JSON text.
pub(super) fn read(json: &[u8]) -> Result<Value, serde_json::Error> {
    let left = Cell::new(MAX_COST);
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = Tree { left: &left }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Tree<'a> {
    left: &'a Cell<usize>,
}

impl Tree<'_> {
    fn pay<E: Error>(self, cost: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(cost);
        self.left.set(left.ok_or_else(|| {
            E::custom("the input has too many values: it would take more than 128 MiB to hold them")
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
        self.pay(ARRAY)?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            self.pay(VALUE)?;
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.pay(OBJECT)?;
        let mut object = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            self.pay(2 * VALUE)?;
            let value = entries.next_value_seed(self)?;
            if object.contains_key(&name) {
                return Err(A::Error::custom(format_args!(
                    "the name {name:?} comes twice in one object"
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
    fn it_reads_what_serde_reads() {
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
        for bad in [
            "",
            "[1",
            "{}x",
            "nul",
            "[1e400]",
            r#""\ud800""#,
            &"[".repeat(1000),
        ] {
            assert!(read(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_comes_once() {
        for twice in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"x":{"b":1,"c":2,"b":3}}]"#,
        ] {
            assert!(
                read(twice.as_bytes())
                    .unwrap_err()
                    .to_string()
                    .contains("comes twice"),
                "{twice}"
            );
        }
    }

    #[test]
    fn many_values_are_refused_before_they_fill_the_memory() {
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
