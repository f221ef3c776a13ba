//! Values of `fleet.toml` that can be written in several ways. No error message contains a value that may
//! be a secret.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

/// A value with a unit: a string, or a plain number.
#[derive(Debug)]
pub(super) struct Quantity(pub(super) String);

/// A whole number; its range is checked by `parse`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Whole(pub(super) i64);

/// A number with or without a fraction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decimal(pub(super) f64);

/// A parameter of a routing strategy, as text.
#[derive(Debug)]
pub(super) struct RoutingParam(pub(super) String);

/// A secret, or where it is.
pub(super) enum FileSecret {
    /// The secret itself.
    Literal(String),
    /// The path of a file with the secret.
    File(Spanned<String>),
    /// The name of an environment variable with the secret.
    Env(Spanned<String>),
}

impl fmt::Debug for FileSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(_) => f.write_str("(secret)"),
            Self::File(path) => write!(f, "file {}", path.get_ref()),
            Self::Env(name) => write!(f, "env {}", name.get_ref()),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = TextVisitor("a string such as \"30s\" or \"8MiB\"");
        deserializer.deserialize_any(visitor).map(Self)
    }
}

impl<'de> Deserialize<'de> for RoutingParam {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = TextVisitor("a string or a number");
        deserializer.deserialize_any(visitor).map(Self)
    }
}

/// Reads a string or a number as text.
struct TextVisitor(&'static str);

impl Visitor<'_> for TextVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor).map(Self)
    }
}

struct WholeVisitor;

impl Visitor<'_> for WholeVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DecimalVisitor).map(Self)
    }
}

struct DecimalVisitor;

impl Visitor<'_> for DecimalVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<f64, E> {
        Ok(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<f64, E> {
        Ok(number)
    }
}

impl<'de> Deserialize<'de> for FileSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SecretVisitor)
    }
}

struct SecretVisitor;

impl<'de> Visitor<'de> for SecretVisitor {
    type Value = FileSecret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, `{ file = \"PATH\" }` or `{ env = \"NAME\" }`")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<FileSecret, E> {
        Ok(FileSecret::Literal(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FileSecret, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<String>()? {
            let secret = match key.as_str() {
                "file" => FileSecret::File(map.next_value()?),
                "env" => FileSecret::Env(map.next_value()?),
                other => return Err(A::Error::unknown_field(other, &["file", "env"])),
            };
            if found.replace(secret).is_some() {
                return Err(A::Error::custom(
                    "a secret has one source: `file` or `env`, not both",
                ));
            }
        }
        found.ok_or_else(|| A::Error::custom("a secret needs a source: `file` or `env`"))
    }
}
