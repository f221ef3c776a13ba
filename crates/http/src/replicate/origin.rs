//! The origin of the URLs in responses. Clients call these URLs as they are, so they must be
//! absolute and reach this server.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::HOST;
use axum::http::request::Parts;
use url::Url;

use super::AppState;

/// The origin under which the client reaches this server: the configured public URL, or the host
/// that the request names.
#[derive(Debug, Clone)]
pub(super) struct Origin(Url);

impl Origin {
    /// Parses a stored origin; `None` if it is not a base URL.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Url::parse(text)
            .ok()
            .filter(|url| !url.cannot_be_a_base())
            .map(Self)
    }

    /// The URL of a path below the origin.
    pub(super) fn to(&self, path: &[&str]) -> String {
        self.url(path).into()
    }

    pub(super) fn url(&self, path: &[&str]) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    /// Whether clients reach the server over TLS.
    pub(super) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The text to store.
    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromRequestParts<Arc<AppState>> for Origin {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<AppState>,
    ) -> Result<Self, Infallible> {
        let named = parts
            .headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .or_else(|| parts.uri.authority().map(|it| it.as_str()));
        Ok(resolve(
            state.config.public_url.as_ref(),
            &state.config.own_url,
            named,
        ))
    }
}

/// The origin for a request that names this host.
pub(super) fn resolve(public_url: Option<&Url>, own_url: &Url, host: Option<&str>) -> Origin {
    if let Some(public) = public_url {
        return Origin(public.clone());
    }
    let named = host.and_then(|host| Url::parse(&format!("{}://{host}", own_url.scheme())).ok());
    // A `Host` header can contain anything. Use it only if it is a host with an optional port.
    let plain = named.filter(|url| {
        url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
    });
    Origin(plain.unwrap_or_else(|| own_url.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_are_escaped_and_the_base_path_is_kept() {
        let origin = Origin::parse("https://h.example/models/").unwrap();
        assert_eq!(
            origin.to(&["v1", "predictions", "a b?/c"]),
            "https://h.example/models/v1/predictions/a%20b%3F%2Fc"
        );
        assert_eq!(
            Origin::parse("http://h:5000").unwrap().to(&["v1"]),
            "http://h:5000/v1"
        );
        assert!(Origin::parse("mailto:a@b").is_none());
    }
}
