//! Which API and which model a request of the router is for, read from its path.

use std::borrow::Cow;

use axum::http::{Method, Uri};

/// The prefix of the Workers AI API.
const ACCOUNTS: &str = "/client/v4/accounts/";

/// A request for an inference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InferenceRoute {
    /// The API whose formats the client uses.
    pub(super) api: ClientApi,
    /// The account that the path names.
    pub(super) account: Option<String>,
    /// The model that the path names; otherwise the body or a header names it.
    pub(super) model: Option<String>,
    /// The operation.
    pub(super) operation: InferenceOperation,
    /// The path for a backend that speaks the same API, with the query of the request.
    pub(super) upstream_path: String,
}

/// The API whose formats a client of the router uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ClientApi {
    /// OpenAI's.
    OpenAi,
    /// The REST API of Workers AI.
    WorkersAi,
    /// Cog's predictions.
    Cog,
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InferenceOperation {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completion,
    /// `/v1/embeddings`
    Embeddings,
    /// Any other path of OpenAI's API: passed on unchanged.
    OtherOpenAi,
    /// `/ai/run/{model}`
    Run,
    /// A prediction, with the id that the client has chosen.
    Prediction(Option<String>),
}

impl ClientApi {
    /// The name in metrics and events.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::WorkersAi => "workers-ai",
            Self::Cog => "cog",
        }
    }

    /// The API that a path belongs to, for the format of errors.
    pub(super) fn of_path(path: &str) -> Self {
        if path.starts_with("/client/v4/") || path.starts_with("/ai/run/") {
            match path.contains("/ai/v1/") {
                true => Self::OpenAi,
                false => Self::WorkersAi,
            }
        } else if path.starts_with("/predictions") || path.starts_with("/models/") {
            Self::Cog
        } else {
            Self::OpenAi
        }
    }
}

impl InferenceRoute {
    /// The inference that a request asks for; `None` if it asks for something else.
    pub(super) fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let path = uri.path();
        // A backend could leave its prefix by them.
        let is_dots = |segment: &str| matches!(decode(segment).as_deref(), None | Some("." | ".."));
        if path.split('/').any(is_dots) {
            return None;
        }
        if let Some(rest) = path.strip_prefix("/v1/") {
            return Self::openai(method, rest, uri, None);
        }
        if let Some(rest) = path.strip_prefix(ACCOUNTS) {
            let (account, rest) = rest.split_once("/ai/")?;
            let account = decode(account)?;
            return Self::workers_ai(method, rest, uri, Some(account.into_owned()));
        }
        if let Some(rest) = path.strip_prefix("/ai/") {
            return Self::workers_ai(method, rest, uri, None);
        }
        Self::cog(method, path, uri)
    }

    fn workers_ai(method: &Method, rest: &str, uri: &Uri, account: Option<String>) -> Option<Self> {
        if let Some(rest) = rest.strip_prefix("v1/") {
            return Self::openai(method, rest, uri, account);
        }
        let model = rest
            .strip_prefix("run/")
            .filter(|model| !model.is_empty())?;
        (method == Method::POST || method == Method::GET).then_some(())?;
        Some(Self {
            api: ClientApi::WorkersAi,
            account,
            model: Some(decode(model)?.into_owned()),
            operation: InferenceOperation::Run,
            upstream_path: with_query(uri.path(), uri),
        })
    }

    fn openai(method: &Method, rest: &str, uri: &Uri, account: Option<String>) -> Option<Self> {
        let operation = match rest {
            "models" => return None,
            _ if rest.starts_with("models/") => return None,
            "chat/completions" if method == Method::POST => InferenceOperation::Chat,
            "completions" if method == Method::POST => InferenceOperation::Completion,
            "embeddings" if method == Method::POST => InferenceOperation::Embeddings,
            _ => InferenceOperation::OtherOpenAi,
        };
        Some(Self {
            api: ClientApi::OpenAi,
            account,
            model: None,
            operation,
            upstream_path: with_query(&format!("/v1/{rest}"), uri),
        })
    }

    fn cog(method: &Method, path: &str, uri: &Uri) -> Option<Self> {
        let (model, path) = match path.strip_prefix("/models/") {
            Some(rest) => {
                let (model, path) = rest.split_at(rest.rfind("/predictions")?);
                (Some(decode(model)?.into_owned()), path)
            }
            None => (None, path),
        };
        let id = match (method, path.strip_prefix("/predictions")?) {
            (&Method::POST, "") => None,
            (&Method::PUT, id) => {
                let id = id.strip_prefix('/')?;
                if id.is_empty() || id.contains('/') {
                    return None;
                }
                Some(id.to_owned())
            }
            _ => return None,
        };
        Some(Self {
            api: ClientApi::Cog,
            account: None,
            model,
            operation: InferenceOperation::Prediction(id),
            upstream_path: with_query(path, uri),
        })
    }
}

fn with_query(path: &str, uri: &Uri) -> String {
    match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// The account that a path of the Workers AI API names.
pub(super) fn path_account(path: &str) -> Option<Cow<'_, str>> {
    let (account, _) = path.strip_prefix(ACCOUNTS)?.split_once('/')?;
    decode(account)
}

/// The value of a parameter of the query.
pub(super) fn query_value(uri: &Uri, name: &str) -> Option<String> {
    let query = uri.query()?;
    url::form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
}

/// Decodes the percent-encoding of a path; `None` if the result is not UTF-8.
pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        let hex = (byte == b'%').then(|| after.get(..2)).flatten();
        let value = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match value {
            Some(value) => {
                out.push(value);
                rest = &after[2..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(method: &str, path: &str) -> Option<InferenceRoute> {
        let method = method.parse().unwrap();
        InferenceRoute::of(&method, &path.parse().unwrap())
    }

    #[test]
    fn both_spellings_of_a_model_path_are_equal() {
        for model in [
            "@cf/meta/llama-3.1-8b-instruct",
            "@cf%2Fmeta%2Fllama-3.1-8b-instruct",
        ] {
            let route = route("POST", &format!("{ACCOUNTS}acct1/ai/run/{model}")).unwrap();
            assert_eq!(
                route.model.as_deref(),
                Some("@cf/meta/llama-3.1-8b-instruct")
            );
            assert_eq!(route.account.as_deref(), Some("acct1"));
            assert_eq!(route.api, ClientApi::WorkersAi);
        }
    }

    #[test]
    fn the_paths_of_openai_are_known_below_both_prefixes() {
        for (path, account) in [
            ("/v1/chat/completions?a=b", None),
            (
                "/client/v4/accounts/a1/ai/v1/chat/completions?a=b",
                Some("a1"),
            ),
            ("/ai/v1/chat/completions?a=b", None),
        ] {
            let route = route("POST", path).unwrap();
            assert_eq!(route.operation, InferenceOperation::Chat);
            assert_eq!(route.upstream_path, "/v1/chat/completions?a=b");
            assert_eq!(route.account.as_deref(), account);
        }
        assert_eq!(route("GET", "/v1/models"), None);
        let other = route("GET", "/v1/responses/abc").unwrap();
        assert_eq!(other.operation, InferenceOperation::OtherOpenAi);
    }

    #[test]
    fn predictions_may_name_a_model_and_an_id() {
        let plain = route("POST", "/predictions").unwrap();
        assert_eq!(plain.operation, InferenceOperation::Prediction(None));
        let named = route("PUT", "/models/ann/echo/predictions/p1").unwrap();
        assert_eq!(named.model.as_deref(), Some("ann/echo"));
        assert_eq!(
            named.operation,
            InferenceOperation::Prediction(Some("p1".to_owned()))
        );
        assert_eq!(route("GET", "/predictions"), None);
        assert_eq!(route("PUT", "/predictions/"), None);
        for path in ["/v1/../admin", "/v1/%2e%2E/x", "/v1/./x", "/predictions/.."] {
            assert_eq!(route("PUT", path), None, "{path}");
        }
        assert_eq!(route("GET", "/metrics"), None);
    }
}
