//! The requests of the local API, and validation errors in FastAPI's format.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tidegate_core::lenient::{self, InfinityEncoding};

/// The class of Runpod's server that a body is parsed as; errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `run` and `runsync`: the input is an object.
    Request,
    /// `realtime`: the body has an id, and any input.
    Realtime,
}

/// The parsed body.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) id: Option<String>,
    pub(super) input: &'a RawValue,
    pub(super) webhook: Option<String>,
}

/// A validation error of one field.
#[derive(Debug, Serialize)]
pub(super) struct Fault {
    r#type: &'static str,
    loc: Vec<LocSegment>,
    msg: String,
    input: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    ctx: Option<Context>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum LocSegment {
    Name(&'static str),
    At(usize),
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Context {
    ClassName(&'static str),
    Error(String),
}

/// The invalid value, as the client sent it.
#[derive(Debug)]
enum Json {
    Raw(Box<RawValue>),
    Text(String),
    Null,
    Empty,
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Raw(raw) => raw.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Null => serializer.serialize_unit(),
            Self::Empty => serializer.collect_map(std::iter::empty::<((), ())>()),
        }
    }
}

/// Converts what Python clients write and JSON does not allow: `NaN`, infinities, a byte-order mark.
pub(super) fn readable(body: Bytes) -> Bytes {
    let has = |word: &[u8]| memchr::memmem::find(&body, word).is_some();
    let odd = body.starts_with("\u{feff}".as_bytes()) || has(b"NaN") || has(b"Infinity");
    if odd {
        lenient::as_json(&body, InfinityEncoding::OutOfRange).unwrap_or(body)
    } else {
        body
    }
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Self::Request => "DefaultRequest",
            Self::Realtime => "Job",
        }
    }

    /// Parses a body. Returns all errors at once.
    pub(super) fn read<'a>(
        self,
        headers: &HeaderMap,
        body: &'a Bytes,
    ) -> Result<Run<'a>, Vec<Fault>> {
        if body.is_empty() {
            return Err(vec![Fault::missing(
                vec![LocSegment::Name("body")],
                Json::Null,
            )]);
        }
        if !is_json(headers) {
            return Err(vec![
                self.no_object(Json::Text(String::from_utf8_lossy(body).into_owned())),
            ]);
        }
        let whole: &RawValue =
            serde_json::from_slice(body).map_err(|error| vec![Fault::syntax(body, &error)])?;
        let Ok(parts) = serde_json::from_str::<BTreeMap<Cow<'_, str>, &'a RawValue>>(whole.get())
        else {
            return Err(vec![self.no_object(Json::Raw(whole.to_owned()))]);
        };
        let mut faults = Vec::new();
        let id = match (self, parts.get("id")) {
            (Self::Request, _) => None,
            (Self::Realtime, Some(id)) => text("id", id, &mut faults),
            (Self::Realtime, None) => {
                faults.push(Fault::missing(
                    vec![LocSegment::Name("body"), LocSegment::Name("id")],
                    Json::Raw(whole.to_owned()),
                ));
                None
            }
        };
        let input = parts.get("input").copied();
        match input {
            None => faults.push(Fault::missing(
                vec![LocSegment::Name("body"), LocSegment::Name("input")],
                Json::Raw(whole.to_owned()),
            )),
            Some(input) if self == Self::Request && !input.get().starts_with('{') => {
                faults.push(Fault::of(
                    "dict_type",
                    "input",
                    "Input should be a valid dictionary",
                    input,
                ));
            }
            Some(_) => {}
        }
        let webhook = match (self, parts.get("webhook")) {
            (Self::Request, Some(webhook)) if webhook.get() != "null" => {
                text("webhook", webhook, &mut faults)
            }
            (Self::Request | Self::Realtime, _) => None,
        };
        match input {
            Some(input) if faults.is_empty() => Ok(Run {
                id,
                input,
                webhook: webhook.filter(|url| !url.is_empty()),
            }),
            Some(_) | None => Err(faults),
        }
    }

    fn no_object(self, value: Json) -> Fault {
        Fault {
            r#type: "dataclass_type",
            loc: vec![LocSegment::Name("body")],
            msg: format!(
                "Input should be a dictionary or an instance of {}",
                self.class()
            ),
            input: value,
            ctx: Some(Context::ClassName(self.class())),
        }
    }
}

impl Fault {
    fn missing(loc: Vec<LocSegment>, input: Json) -> Self {
        Self {
            r#type: "missing",
            loc,
            msg: "Field required".to_owned(),
            input,
            ctx: None,
        }
    }

    fn of(kind: &'static str, name: &'static str, msg: &str, value: &RawValue) -> Self {
        let loc = vec![LocSegment::Name("body"), LocSegment::Name(name)];
        Self {
            r#type: kind,
            loc,
            msg: msg.to_owned(),
            input: Json::Raw(value.to_owned()),
            ctx: None,
        }
    }

    fn syntax(body: &[u8], error: &serde_json::Error) -> Self {
        let before = body
            .split(|byte| *byte == b'\n')
            .take(error.line().saturating_sub(1))
            .map(|line| line.len() + 1)
            .sum::<usize>();
        Self {
            r#type: "json_invalid",
            loc: vec![
                LocSegment::Name("body"),
                LocSegment::At(before + error.column()),
            ],
            msg: "JSON decode error".to_owned(),
            input: Json::Empty,
            ctx: Some(Context::Error(error.to_string())),
        }
    }

    /// A webhook URL that is not accepted.
    pub(super) fn of_webhook(url: &str, reason: &str) -> Self {
        let loc = vec![LocSegment::Name("body"), LocSegment::Name("webhook")];
        Self {
            r#type: "value_error",
            loc,
            msg: reason.to_owned(),
            input: Json::Text(url.to_owned()),
            ctx: None,
        }
    }
}

fn text(name: &'static str, raw: &RawValue, faults: &mut Vec<Fault>) -> Option<String> {
    let read = serde_json::from_str(raw.get());
    if read.is_err() {
        faults.push(Fault::of(
            "string_type",
            name,
            "Input should be a valid string",
            raw,
        ));
    }
    read.ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn faults(kind: Kind, body: &'static str) -> String {
        let headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let body = Bytes::from_static(body.as_bytes());
        serde_json::to_string(&kind.read(&headers, &body).unwrap_err()).unwrap()
    }

    #[test]
    fn validation_errors_have_fastapis_format() {
        let errors: Vec<String> = [
            "",
            "{}",
            "[]",
            r#"{"input":null}"#,
            r#"{"input":[1],"webhook":5}"#,
            "{\n]",
        ]
        .into_iter()
        .map(|body| format!("{body:?} {}", faults(Kind::Request, body)))
        .chain([
            faults(Kind::Realtime, r#"{"input":1}"#),
            faults(Kind::Realtime, r#"{"id":1,"input":1}"#),
        ])
        .collect();
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn a_webhook_may_be_absent_null_or_empty() {
        let headers =
            HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        for body in [
            r#"{"input":{}}"#,
            r#"{"input":{},"webhook":null}"#,
            r#"{"input":{},"webhook":"","id":3}"#,
        ] {
            let body = Bytes::from_static(body.as_bytes());
            let run = Kind::Request.read(&headers, &body).unwrap();
            assert!(run.webhook.is_none() && run.id.is_none());
        }
    }
}
