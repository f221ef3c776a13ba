//! The addresses in answers: clients call them as they are, so they must be whole and reach this server.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::HOST;
use axum::http::request::Parts;
use url::Url;

use super::AppState;

/// How the caller reaches this server: the configured address, or the name by which it was called.
#[derive(Debug, Clone)]
pub(super) struct Origin(Url);

impl Origin {
    /// As it was written down; `None` when that is no address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Url::parse(text)
            .ok()
            .filter(|url| !url.cannot_be_a_base())
            .map(Self)
    }

    /// The address of something below it.
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

    /// To be written down.
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

/// How a caller that names this host reaches this server.
pub(super) fn resolve(public_url: Option<&Url>, own_url: &Url, host: Option<&str>) -> Origin {
    if let Some(public) = public_url {
        return Origin(public.clone());
    }
    let named = host.and_then(|host| Url::parse(&format!("{}://{host}", own_url.scheme())).ok());
    // A header can hold anything; what is more than a host and a port is not used.
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
    fn what_stands_below_is_escaped_and_a_path_is_kept() {
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
