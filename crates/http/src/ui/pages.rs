//! The responses with the files of the web UI, their security headers, and the redirects to the page.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, LOCATION, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use url::Url;

use super::assets;
use crate::shared::header_lists::{accepts, accepts_gzip};

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// For files whose URL changes with their content.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// For the page, which names the current files.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// The content security policy of the page. Model output is hostile and shares the page's origin, so no text
/// may become code, and nothing may be loaded from or sent to another host. `file_origins` are the hosts that
/// output files are downloaded from.
pub(super) fn content_security_policy(file_origins: &[Url]) -> HeaderValue {
    let mut files = String::from("'self' blob: data:");
    for origin in origins(file_origins) {
        files.push(' ');
        files.push_str(&origin);
    }
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src {files}; \
         media-src {files}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'"
    );
    HeaderValue::try_from(policy).expect("an origin is ASCII text")
}

/// The origins of these URLs, as browsers write them.
pub(super) fn origins(urls: &[Url]) -> Vec<String> {
    let origins = urls.iter().map(Url::origin);
    // Other origins are opaque and would be written as `null`.
    let tuples = origins.filter(|origin| origin.is_tuple());
    tuples.map(|origin| origin.ascii_serialization()).collect()
}

/// `GET /ui`: the page is one level deeper, so that its relative URLs work.
pub(super) async fn add_slash() -> Response {
    redirect(StatusCode::PERMANENT_REDIRECT, "ui/")
}

/// `GET /ui/…`: the page, which shows what its path names.
pub(super) async fn page(State(policy): State<HeaderValue>, uri: Uri) -> Response {
    // As the browser wrote it: an encoded `/` is no level.
    let path = uri.path().strip_prefix(super::ROOT).unwrap_or_default();
    let Some(page) = assets::page(path) else {
        return not_found("no such page: the path has too many parts\n");
    };
    let mut response = file_response(page.into(), "text/html; charset=utf-8", REVALIDATE);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// `GET /ui/assets/HASH/NAME`
pub(super) async fn asset(
    State(policy): State<HeaderValue>,
    Path(path): Path<String>,
    request: HeaderMap,
) -> Response {
    let Some(asset) = assets::find(&path) else {
        return not_found("no such file: it belongs to another version of the page\n");
    };
    let gzip = asset.gzip.filter(|_| accepts_gzip(&request));
    let content = gzip.unwrap_or(asset.content);
    let mut response = file_response(content.into(), asset.media_type, FOREVER);
    let headers = response.headers_mut();
    if gzip.is_some() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if asset.gzip.is_some() {
        headers.insert(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    }
    // For an SVG that is opened as a page.
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    response
}

fn not_found(text: &'static str) -> Response {
    let mut response = file_response(text.into(), "text/plain; charset=utf-8", REVALIDATE);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn file_response(body: Body, media_type: &'static str, caching: HeaderValue) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, caching);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    response
}

/// The response of `GET /`: a redirect to the web UI for browsers, `index` for other clients.
pub(crate) fn index_response(headers: &HeaderMap, index: impl FnOnce() -> Response) -> Response {
    let mut response = if asks_for_page(headers) {
        redirect(StatusCode::SEE_OTHER, "ui/")
    } else {
        index()
    };
    let vary = HeaderValue::from_name(ACCEPT);
    response.headers_mut().append(VARY, vary);
    response
}

/// `GET /docs`: the documentation is part of the web UI.
pub(crate) async fn docs_redirect() -> Response {
    redirect(StatusCode::SEE_OTHER, "ui/docs")
}

/// Whether a client is a browser that opens a page.
pub(super) fn asks_for_page(headers: &HeaderMap) -> bool {
    accepts(headers, "text/html")
}

/// A redirect to a path relative to that of the request, because a proxy may add a prefix to both.
pub(crate) fn redirect(status: StatusCode, location: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let location = HeaderValue::try_from(location).expect("paths and names are visible ASCII");
    response.headers_mut().insert(LOCATION, location);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_files_of_the_file_store_and_nothing_else() {
        let policy = |origins: &[Url]| {
            content_security_policy(origins)
                .to_str()
                .unwrap()
                .to_owned()
        };
        insta::assert_snapshot!(policy(&[]));
        let store = Url::parse("https://files.example:8443/bucket?x").unwrap();
        let policy = policy(&[store, Url::parse("data:text/plain,x").unwrap()]);
        for directive in ["img-src", "media-src"] {
            let expected = format!("{directive} 'self' blob: data: https://files.example:8443;");
            assert!(policy.contains(&expected), "{policy}");
        }
    }
}
