//! The files of jobs: directors upload output files, and download stored input files and the weights of
//! trained versions.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use tidegate_core::director_api::{FILE_NAME_HEADER, LeaseToken};
use tidegate_core::file_index::StoredFile;
use tidegate_service::{CallError, FileStoreError, FileWriter};
use url::Url;

use super::Calls;
use super::reply::CallRefusal;
use crate::shared::body_limit::BodyError;

const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// `PUT /director/v1/files/{token}/{name}`
pub(super) async fn upload(
    State(state): State<Calls>,
    Path((token, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, CallRefusal> {
    let job = state.calls.job_of(&LeaseToken(token))?;
    let file_store = state.calls.file_store()?;
    let size = body.size_hint().lower();
    if size > state.max_file {
        return Err(CallError::File(FileStoreError::TooLarge(state.max_file)).into());
    }
    let writer = file_store.create_writer(size, state.max_file).await;
    let writer = writer.map_err(CallError::File)?;
    let writer = receive(writer, body, state.limit.stall_timeout).await?;
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or(DEFAULT_CONTENT_TYPE)
        .to_owned();
    let stored = state.calls.store_output(&job, writer, (name, content_type));
    let address = stored.await?;
    let mut response = StatusCode::CREATED.into_response();
    let address = HeaderValue::try_from(address).map_err(|_| CallRefusal::UnwritableAddress)?;
    response.headers_mut().insert(LOCATION, address);
    Ok(response)
}

/// Writes a body to the file store. If the director disconnects, the partial file is removed.
async fn receive(
    mut writer: FileWriter,
    body: Body,
    stall_timeout: Duration,
) -> Result<FileWriter, CallRefusal> {
    let mut body = body.into_data_stream();
    loop {
        match tokio::time::timeout(stall_timeout, body.next()).await {
            Ok(None) => return Ok(writer),
            Ok(Some(Ok(bytes))) => writer.write(&bytes).await.map_err(CallError::File)?,
            Ok(Some(Err(error))) => return Err(CallRefusal::Interrupted(error)),
            Err(_) => {
                return Err(CallRefusal::Body(BodyError::Stalled {
                    after: stall_timeout,
                    flag: Some("--body-timeout"),
                }));
            }
        }
    }
}

/// `GET /director/v1/files/{token}/{id}`
pub(super) async fn download(
    State(state): State<Calls>,
    Path((token, id)): Path<(String, String)>,
) -> Result<Response, CallRefusal> {
    let job = state.calls.job_of(&LeaseToken(token))?;
    let file = state.calls.stored_file(&job, &id).await?;
    send(&state, &file).await
}

/// `GET /director/v1/weights/{key}`
pub(super) async fn weights(
    State(state): State<Calls>,
    Path(key): Path<String>,
) -> Result<Response, CallRefusal> {
    let file = state.calls.weights_of(&key).await?;
    send(&state, &file).await
}

async fn send(state: &Calls, file: &StoredFile) -> Result<Response, CallRefusal> {
    let file_store = state.calls.file_store()?;
    let opened = file_store.read(&file.sha256, 0..file.size).await;
    let reader = opened.map_err(|error| CallError::File(error.into()))?;
    // A read error breaks the connection, so that the director notices that the file is incomplete.
    let body = Body::from_stream(stream::unfold(reader, |mut reader| async move {
        let next = reader
            .next()
            .await
            .inspect_err(|error| tracing::error!(%error, "failed to read file for a director"));
        Some((next.transpose()?, reader))
    }));
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, file.size.into());
    headers.extend(encoded_name(&file.name).map(|name| (FILE_NAME_HEADER_NAME, name)));
    Ok(response)
}

const FILE_NAME_HEADER_NAME: axum::http::HeaderName =
    axum::http::HeaderName::from_static(FILE_NAME_HEADER);

/// A file name as the last segment of a URL.
fn encoded_name(name: &str) -> Option<HeaderValue> {
    let mut url = Url::parse("http://api/").ok()?;
    url.path_segments_mut().ok()?.push(name);
    HeaderValue::from_str(url.path().trim_start_matches('/')).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_for_a_header() {
        for (name, encoded) in [
            ("a.png", "a.png"),
            ("ü ?#/\"\n.png", "%C3%BC%20%3F%23%2F%22.png"),
        ] {
            assert_eq!(encoded_name(name).unwrap(), encoded, "{name}");
        }
    }
}
