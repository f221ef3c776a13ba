//! The parameters of a request.
//!
//! Workers append `&name=value` to any URL they are configured with. Without a `?` in the URL, these
//! parameters become part of the path.

use axum::http::Uri;
use url::form_urlencoded;

use super::reply::ApiError;

/// The parameters of a request.
pub(super) struct EndpointQuery(Vec<(String, String)>);

impl EndpointQuery {
    pub(super) fn of(uri: &Uri) -> Self {
        let appended = uri
            .path()
            .split_once('&')
            .map_or("", |(_, appended)| appended);
        let sources = [appended, uri.query().unwrap_or_default()];
        Self(
            sources
                .iter()
                .flat_map(|text| form_urlencoded::parse(text.as_bytes()).into_owned())
                .collect(),
        )
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// A number, or the default if the parameter is missing.
    pub(super) fn number(&self, name: &str, default: usize) -> Result<usize, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        text.parse()
            .map_err(|_| ApiError::InvalidRequest(format!("`{name}` is not a whole number")))
    }
}

/// A path segment without the parameters appended to it.
pub(super) fn plain(part: &str) -> &str {
    part.split('&').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_in_the_path_too() {
        for uri in [
            "/v2/e/job-take/w?gpu=x&batch_size=3",
            "/v2/e/job-take/w&gpu=x&batch_size=3",
            "/v2/e/job-take/w&batch_size=3?gpu=x",
        ] {
            let query = EndpointQuery::of(&Uri::from_static(uri));
            assert_eq!(
                (query.get("batch_size"), query.get("gpu"), query.get("x")),
                (Some("3"), Some("x"), None),
                "{uri}"
            );
        }
        assert_eq!((plain("w&batch_size=3"), plain("w")), ("w", "w"));
    }
}
