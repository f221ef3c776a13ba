//! The hints in the document that a model's child sends: what the server must know about the model and
//! Cog's OpenAPI document does not say. Clients get the document without them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The key of the hints in the document.
const KEY: &str = "x-tidegate";

/// What the server must know about a model and its OpenAPI document does not say.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SchemaHints {
    /// By component: required inputs that a request may omit, because their default is `None`.
    pub(super) optional: BTreeMap<String, Vec<String>>,
    /// Whether the function for predictions is a generator although its declared output is none.
    pub(super) yields: bool,
}

impl SchemaHints {
    pub(super) fn of(document: &Value) -> Self {
        document
            .get(KEY)
            .and_then(|hints| Self::deserialize(hints).ok())
            .unwrap_or_default()
    }

    /// The inputs of a component that a request may omit.
    pub(super) fn optional(&self, component: &str) -> &[String] {
        self.optional.get(component).map_or(&[], Vec::as_slice)
    }
}

/// The document for clients: without the hints, the other keys in the same order.
pub(super) fn without_hints(
    document: &Arc<Bytes>,
    root: &Value,
) -> Result<Arc<Bytes>, serde_json::Error> {
    if root.get(KEY).is_none() {
        return Ok(Arc::clone(document));
    }
    let Entries(entries) = serde_json::from_slice(document)?;
    let mut public = Vec::with_capacity(document.len());
    let kept = entries.iter().filter(|(key, _)| key != KEY);
    serde::Serializer::collect_map(
        &mut serde_json::Serializer::new(&mut public),
        kept.map(|(key, value)| (key, value)),
    )?;
    Ok(Arc::new(public.into()))
}

/// The entries of an object in their order, which `serde_json::Map` does not keep.
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;

        impl<'de> Visitor<'de> for Ordered {
            type Value = Entries<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(Ordered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(document: &'static str) -> String {
        let root = serde_json::from_str(document).unwrap();
        let public = without_hints(&Arc::new(Bytes::from_static(document.as_bytes())), &root);
        String::from_utf8(public.unwrap().to_vec()).unwrap()
    }

    #[test]
    fn clients_get_the_document_without_hints_in_its_order() {
        let document = r#"{"z":{"b":1,"a":2},"x-tidegate":{"yields":true},"a":[1.50]}"#;
        assert_eq!(public(document), r#"{"z":{"b":1,"a":2},"a":[1.50]}"#);
    }

    #[test]
    fn a_document_without_hints_is_unchanged() {
        let document = "{ \"b\" : 1 }";
        assert_eq!(public(document), document);
    }
}
