//! Serves the bytes of a file to clients that have its signed URL.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use futures_util::stream;
use tidegate_core::blobs::{BlobError, BlobReader};
use tidegate_core::file_index::StoredFile;

use super::AppState;
use super::range::RequestedRange;
use super::reply::ApiError;

/// `GET`, `HEAD /v1/files/{id}/{name}`. The name is informative only.
pub(super) async fn download(
    State(state): State<Arc<AppState>>,
    Path((id, _name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let links = state.files()?;
    let file = links
        .open(&id, &query.unwrap_or_default())
        .await?
        .ok_or(ApiError::Unknown("file"))?;
    let tag = format!("\"{}\"", file.md5);
    let requested = RequestedRange::read(&headers, file.size, &tag);
    let (status, range) = match &requested {
        RequestedRange::Whole => (StatusCode::OK, 0..file.size),
        RequestedRange::Part(range) => (StatusCode::PARTIAL_CONTENT, range.clone()),
        RequestedRange::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, 0..0),
        RequestedRange::NotModified => (StatusCode::NOT_MODIFIED, 0..0),
    };
    let length = range.end - range.start;
    let body = if method == Method::HEAD || length == 0 {
        Body::empty()
    } else {
        match links.file_store.read(&file.sha256, range.clone()).await {
            Ok(bytes) => body_of(bytes),
            // The file was removed after it was looked up.
            Err(BlobError::Missing) => return Err(ApiError::Unknown("file")),
            Err(error) => return Err(error.into()),
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let response_headers = response.headers_mut();
    response_headers.extend(HeaderValue::try_from(tag).map(|tag| (ETAG, tag)));
    response_headers.insert(CACHE_CONTROL, HeaderValue::from_static("private"));
    if requested == RequestedRange::NotModified {
        return Ok(response);
    }
    set_file_headers(response_headers, &file);
    response_headers.insert(CONTENT_LENGTH, length.into());
    let range = match &requested {
        RequestedRange::Whole | RequestedRange::NotModified => None,
        RequestedRange::Part(_) => Some(format!(
            "bytes {}-{}/{}",
            range.start,
            range.end - 1,
            file.size
        )),
        RequestedRange::Unsatisfiable => Some(format!("bytes */{}", file.size)),
    };
    response_headers
        .extend(range.and_then(|range| Some((CONTENT_RANGE, HeaderValue::try_from(range).ok()?))));
    Ok(response)
}

fn set_file_headers(response_headers: &mut HeaderMap, file: &StoredFile) {
    let content_type = HeaderValue::from_str(&file.content_type);
    response_headers.insert(
        CONTENT_TYPE,
        content_type.unwrap_or(HeaderValue::from_static("application/octet-stream")),
    );
    response_headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // Uploaded HTML must not run in a browser with this server's origin.
    response_headers.insert(CONTENT_DISPOSITION, attachment(&file.name));
    response_headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let sandbox = HeaderValue::from_static("sandbox");
    response_headers.insert(CONTENT_SECURITY_POLICY, sandbox);
}

/// The body of a download. A read error breaks the connection, so that the client notices that the
/// file is incomplete.
fn body_of(bytes: Box<dyn BlobReader>) -> Body {
    Body::from_stream(stream::unfold(bytes, |mut bytes| async move {
        let next = bytes
            .next()
            .await
            .inspect_err(|error| tracing::error!(%error, "failed to read file during download"));
        Some((next.transpose()?, bytes))
    }))
}

/// `Content-Disposition` with the file name: in ASCII for old clients, and complete as in RFC 8187.
fn attachment(name: &str) -> HeaderValue {
    if name.is_empty() {
        return HeaderValue::from_static("attachment");
    }
    let plain = |c: char| {
        if c.is_ascii_graphic() && !matches!(c, '"' | '\\' | '/' | '%') || c == ' ' {
            c
        } else {
            '_'
        }
    };
    let plain: String = name.chars().map(plain).collect();
    let mut value = format!("attachment; filename=\"{plain}\"");
    if plain != name {
        value.push_str("; filename*=UTF-8''");
        for byte in name.bytes() {
            match byte {
                b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
                    value.push(byte.into())
                }
                _ => value.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("attachment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_escaped_in_content_disposition() {
        for (name, want) in [
            ("", "attachment"),
            ("a b.png", "attachment; filename=\"a b.png\""),
            (
                "ü\".png",
                "attachment; filename=\"__.png\"; filename*=UTF-8''%C3%BC%22.png",
            ),
            (
                "a\r\nb/c",
                "attachment; filename=\"a__b_c\"; filename*=UTF-8''a%0D%0Ab%2Fc",
            ),
        ] {
            assert_eq!(attachment(name), want, "{name:?}");
        }
    }
}
