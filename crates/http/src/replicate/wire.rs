//! The requests and responses of Replicate's API. `render` writes the JSON of a job.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::openai::OpenAiModel;
use crate::openai::error::ErrorObject;
use crate::shared::parse_body::WebhookEventName;

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
    pub(super) webhook_events_filter: Option<Vec<WebhookEventName>>,
    /// Deprecated: one webhook at the end. Python's client still sends it.
    #[serde(borrow, default)]
    pub(super) webhook_completed: Option<Cow<'a, str>>,
    /// Deprecated and without effect, but refused for a model that cannot stream.
    #[serde(default)]
    pub(super) stream: Option<bool>,
    /// Of a training: the model that gets the new version.
    #[serde(borrow, default)]
    pub(super) destination: Option<Cow<'a, str>>,
    /// A frequent mistake, refused with an error.
    #[serde(default)]
    pub(super) model: Option<IgnoredAny>,
}

/// The body of a request that creates or changes a deployment.
#[derive(Debug, Default, Deserialize)]
#[serde(
    expecting = "an object like {\"name\": \"…\", \"model\": \"owner/name\", \"version\": \"…\"}"
)]
pub(super) struct Deploy {
    pub(super) name: Option<String>,
    pub(super) model: Option<String>,
    pub(super) version: Option<String>,
    pub(super) hardware: Option<String>,
    pub(super) min_instances: Option<u32>,
    pub(super) max_instances: Option<u32>,
}

/// The body of a request that creates or changes a model.
#[derive(Debug, Default, Deserialize)]
#[serde(
    expecting = "an object like {\"owner\": \"…\", \"name\": \"…\", \"visibility\": \"private\", \"hardware\": \"…\"}"
)]
pub(super) struct Describe {
    pub(super) owner: Option<String>,
    pub(super) name: Option<String>,
    pub(super) visibility: Option<String>,
    pub(super) hardware: Option<String>,
    pub(super) description: Option<String>,
    pub(super) github_url: Option<String>,
    pub(super) paper_url: Option<String>,
    pub(super) license_url: Option<String>,
    pub(super) cover_image_url: Option<String>,
    pub(super) weights_url: Option<String>,
    pub(super) readme: Option<String>,
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub(super) struct Page<T> {
    pub(super) next: Option<String>,
    pub(super) previous: Option<String>,
    pub(super) results: Vec<T>,
}

impl<T> Page<T> {
    /// The only page of a list.
    pub(super) fn only(results: Vec<T>) -> Self {
        Self {
            next: None,
            previous: None,
            results,
        }
    }

    /// The same page with each item rendered.
    pub(super) fn each<'a, U>(&'a self, render: impl Fn(&'a T) -> U) -> Page<U> {
        Page {
            next: self.next.clone(),
            previous: self.previous.clone(),
            results: self.results.iter().map(render).collect(),
        }
    }
}

/// The list of models, for clients of Replicate's and of OpenAI's API.
#[derive(Debug, Serialize)]
pub(super) struct ModelList<'a> {
    #[serde(flatten)]
    pub(super) page: Page<Model<'a>>,
    pub(super) object: &'static str,
    pub(super) data: Vec<OpenAiModel>,
}

/// One model that is served from a folder, for clients of both APIs.
#[derive(Debug, Serialize)]
pub(super) struct OneModel<'a> {
    #[serde(flatten)]
    pub(super) model: Model<'a>,
    #[serde(flatten)]
    pub(super) openai: Option<OpenAiModel>,
}

/// The URLs of a prediction. Python's client accepts no `null` here.
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

impl Model<'_> {
    /// Whether the name or the description contains a text, in any case.
    pub(super) fn matches(&self, text: &str) -> bool {
        contains_ignoring_case(&format!("{}/{}", self.owner, self.name), text)
            || self
                .description
                .is_some_and(|description| contains_ignoring_case(description, text))
    }
}

/// Whether a text contains another, in any case.
pub(super) fn contains_ignoring_case(whole: &str, part: &str) -> bool {
    whole.to_lowercase().contains(&part.trim().to_lowercase())
}

/// Python's client accepts no `null` here either.
#[derive(Debug, Serialize)]
pub(super) struct Version<'a> {
    pub(super) id: &'a str,
    pub(super) created_at: String,
    pub(super) cog_version: &'static str,
    pub(super) openapi_schema: &'a RawValue,
}

#[derive(Debug, Serialize)]
pub(super) struct Deployment<'a> {
    pub(super) owner: &'a str,
    pub(super) name: &'a str,
    pub(super) current_release: Release<'a>,
}

#[derive(Debug, Serialize)]
pub(super) struct Release<'a> {
    pub(super) number: u64,
    pub(super) model: &'a str,
    pub(super) version: &'a str,
    pub(super) created_at: String,
    pub(super) created_by: Account<'a>,
    pub(super) configuration: Configuration<'a>,
}

#[derive(Debug, Serialize)]
pub(super) struct Configuration<'a> {
    pub(super) hardware: &'a str,
    pub(super) min_instances: u32,
    pub(super) max_instances: u32,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Collection {
    pub(super) name: &'static str,
    pub(super) slug: &'static str,
    pub(super) description: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct WholeCollection<'a> {
    #[serde(flatten)]
    pub(super) about: Collection,
    pub(super) models: Vec<Model<'a>>,
}

#[derive(Debug, Serialize)]
pub(super) struct Search<'a> {
    pub(super) query: &'a str,
    pub(super) models: Vec<Found<'a>>,
    pub(super) collections: Vec<Collection>,
    /// Pages of Replicate's documentation; always empty.
    pub(super) pages: [(); 0],
}

#[derive(Debug, Serialize)]
pub(super) struct Found<'a> {
    pub(super) model: Model<'a>,
    pub(super) metadata: Metadata,
}

/// Replicate generates metadata about models; this server has none.
#[derive(Debug, Serialize)]
pub(super) struct Metadata {}

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

/// An uploaded file. Python's client accepts no `null` here.
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

/// `get` is the URL for inputs and needs a token; `download` has the bytes and needs none.
#[derive(Debug, Serialize)]
pub(super) struct FileUrls {
    pub(super) get: String,
    pub(super) download: String,
}

/// An error as in RFC 7807, with Replicate's `invalid_fields`.
#[derive(Debug, Serialize)]
pub(super) struct Problem<'a> {
    pub(super) title: &'a str,
    pub(super) detail: &'a str,
    pub(super) status: u16,
    /// Seconds after which the client may retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) retry_after: Option<u64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) invalid_fields: &'a [InvalidField],
    /// The same error for clients of OpenAI's API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorObject<'a>>,
}

/// One invalid field of a request body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct InvalidField {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) field: String,
    pub(super) description: String,
}

impl InvalidField {
    /// A required field that is missing.
    pub(super) fn required(name: &str) -> Self {
        Self {
            kind: "required",
            field: String::new(),
            description: format!("{name} is required"),
        }
    }

    /// The errors for the fields that are not given.
    pub(super) fn missing(given: &[(&str, bool)]) -> Vec<Self> {
        given
            .iter()
            .filter(|(_, given)| !given)
            .map(|(name, _)| Self::required(name))
            .collect()
    }

    /// A value that is not one of the choices.
    pub(super) fn choice(field: &str, choices: &[&str]) -> Self {
        let description = format!(
            "{field} must be one of the following: {}",
            choices.join(", ")
        );
        Self {
            kind: "enum",
            field: field.to_owned(),
            description,
        }
    }

    /// A name that is not valid in a path.
    pub(super) fn name() -> Self {
        Self::invalid(
            "name",
            "use 1 to 64 lower-case letters, digits, `-`, `_` and `.`, with a letter or digit at both ends",
        )
    }

    pub(super) fn invalid(field: &str, description: &str) -> Self {
        Self {
            kind: "invalid",
            field: field.to_owned(),
            description: description.to_owned(),
        }
    }
}
