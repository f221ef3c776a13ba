//! What is asked in a path and behind it.
//!
//! Workers put `&name=value` behind whatever address they were given. Without a `?` in it, that becomes a
//! part of the path.

use axum::http::Uri;
use url::form_urlencoded;

use super::reply::ApiError;

/// The parameters of a request.
pub(super) struct QueryParams(Vec<(String, String)>);

impl QueryParams {
    pub(super) fn of(uri: &Uri) -> Self {
        let strayed = uri
            .path()
            .split_once('&')
            .map_or("", |(_, strayed)| strayed);
        let asked = [strayed, uri.query().unwrap_or_default()];
        Self(
            asked
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

    /// A number, or this one if none is given.
    pub(super) fn number(&self, name: &str, usual: usize) -> Result<usize, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(usual);
        };
        text.parse()
            .map_err(|_| ApiError::InvalidRequest(format!("`{name}` is a whole number")))
    }
}

/// The last part of a path without what strayed into it.
pub(super) fn plain(part: &str) -> &str {
    part.split('&').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_where_they_strayed() {
        for uri in [
            "/v2/e/job-take/w?gpu=x&batch_size=3",
            "/v2/e/job-take/w&gpu=x&batch_size=3",
            "/v2/e/job-take/w&batch_size=3?gpu=x",
        ] {
            let query = QueryParams::of(&Uri::from_static(uri));
            assert_eq!(
                (query.get("batch_size"), query.get("gpu"), query.get("x")),
                (Some("3"), Some("x"), None),
                "{uri}"
            );
        }
        assert_eq!((plain("w&batch_size=3"), plain("w")), ("w", "w"));
    }
}
