//! The requests and answers of Replicate's API, to the letter. A prediction itself is written by `voice`.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::shared::envelope::EventName;

/// The body of a create request.
#[derive(Debug, Default, Deserialize)]
#[serde(expecting = "an object like {\"version\": \"…\", \"input\": {…}}")]
pub(super) struct Create<'a> {
    #[serde(borrow, default)]
    pub(super) version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) webhook: Option<Cow<'a, str>>,
    #[serde(default)]
    pub(super) webhook_events_filter: Option<Vec<EventName>>,
    /// The old way to ask for one webhook at the end; Python's client still sends it.
    #[serde(borrow, default)]
    pub(super) webhook_completed: Option<Cow<'a, str>>,
    /// An old wish that needs no answer any more, but can be refused.
    #[serde(default)]
    pub(super) stream: Option<bool>,
    /// Of a training: the model that it is for.
    #[serde(borrow, default)]
    pub(super) destination: Option<Cow<'a, str>>,
    /// Often tried, and an error.
    #[serde(default)]
    pub(super) model: Option<IgnoredAny>,
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub(super) struct Page<T> {
    pub(super) next: Option<String>,
    pub(super) previous: Option<String>,
    pub(super) results: Vec<T>,
}

impl<T> Page<T> {
    /// The only one.
    pub(super) fn only(results: Vec<T>) -> Self {
        Self { next: None, previous: None, results }
    }
}

/// Where a prediction is. Python's client takes no `null` in it.
#[derive(Debug, Serialize)]
pub(super) struct Urls {
    pub(super) cancel: String,
    pub(super) get: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Model<'a> {
    pub(super) url: String,
    pub(super) owner: &'a str,
    pub(super) name: &'a str,
    pub(super) description: Option<&'a str>,
    pub(super) visibility: &'static str,
    pub(super) github_url: Option<&'a str>,
    pub(super) paper_url: Option<&'a str>,
    pub(super) license_url: Option<&'a str>,
    pub(super) run_count: u64,
    pub(super) cover_image_url: Option<&'a str>,
    pub(super) default_example: Option<()>,
    pub(super) latest_version: Option<Version<'a>>,
}

/// Python's client takes no `null` here either.
#[derive(Debug, Serialize)]
pub(super) struct Version<'a> {
    pub(super) id: &'a str,
    pub(super) created_at: String,
    pub(super) cog_version: &'static str,
    pub(super) openapi_schema: &'a RawValue,
}

#[derive(Debug, Serialize)]
pub(super) struct Account<'a> {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) username: &'a str,
    pub(super) name: &'a str,
    pub(super) github_url: Option<&'a str>,
    pub(super) avatar_url: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub(super) struct Secret {
    pub(super) key: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Hardware {
    pub(super) sku: &'static str,
    pub(super) name: &'static str,
}

/// A file that was left here. Python's client takes no `null` in it.
#[derive(Debug, Serialize)]
pub(super) struct File<'a> {
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) content_type: &'a str,
    pub(super) size: u64,
    pub(super) etag: &'a str,
    pub(super) checksums: Checksums<'a>,
    pub(super) metadata: &'a RawValue,
    pub(super) created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_at: Option<String>,
    pub(super) urls: FileUrls,
}

#[derive(Debug, Serialize)]
pub(super) struct Checksums<'a> {
    pub(super) sha256: &'a str,
    pub(super) md5: &'a str,
}

/// `get` is for inputs and needs a token; `download` has the bytes and needs none.
#[derive(Debug, Serialize)]
pub(super) struct FileUrls {
    pub(super) get: String,
    pub(super) download: String,
}

/// An error: RFC 7807 with Replicate's own field.
#[derive(Debug, Serialize)]
pub(super) struct Problem<'a> {
    pub(super) title: &'a str,
    pub(super) detail: &'a str,
    pub(super) status: u16,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) invalid_fields: &'a [InvalidField],
}

/// One thing wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct InvalidField {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) field: String,
    pub(super) description: String,
}
