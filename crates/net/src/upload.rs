//! Uploads output files to the URL that the operator chose, streamed from the disk.

use std::fs::File;
use std::time::Duration;

use reqwest::header::{CONTENT_LENGTH, HeaderMap, LOCATION};
use reqwest::{Body, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;
use url::Url;

use crate::client::MAX_REDIRECTS;
use crate::error::host_of;
use crate::{Client, Error};

/// Bytes per read of the file.
const CHUNK: usize = 128 * 1024;

impl Client {
    /// Uploads the first `size` bytes of an open file with `PUT`; returns the URL of the uploaded file.
    pub async fn upload(
        &self,
        url: &Url,
        headers: HeaderMap,
        file: &File,
        size: u64,
    ) -> Result<String, Error> {
        let mut url = url.clone();
        // reqwest cannot send a stream twice, so redirects are followed here.
        for _ in 0..=MAX_REDIRECTS {
            let response = self.put(&url, headers.clone(), file, size).await?;
            let location = response
                .headers()
                .get(LOCATION)
                .and_then(|location| location.to_str().ok());
            match (response.status(), location) {
                (status, location) if status.is_success() => {
                    return Ok(without_query(location.unwrap_or(response.url().as_str())));
                }
                (status, Some(location)) if keeps_method(status) => {
                    url = url.join(location).map_err(|_| Error::Status {
                        host: host_of(&url),
                        status,
                    })?;
                }
                (status, _) => {
                    return Err(Error::Status {
                        host: host_of(&url),
                        status,
                    });
                }
            }
        }
        Err(Error::Status {
            host: host_of(&url),
            status: StatusCode::LOOP_DETECTED,
        })
    }

    async fn put(
        &self,
        url: &Url,
        mut headers: HeaderMap,
        file: &File,
        size: u64,
    ) -> Result<Response, Error> {
        let mut file = tokio::fs::File::from_std(file.try_clone().map_err(Error::unreadable)?);
        file.rewind().await.map_err(Error::unreadable)?;
        // Object stores require the length; without it the stream would be sent in chunks.
        headers.insert(CONTENT_LENGTH, size.into());
        let body = Body::wrap_stream(ReaderStream::with_capacity(file.take(size), CHUNK));
        let limit = self.config.upload_timeout + Duration::from_secs(size >> 20);
        let sent = self
            .operator_client(url)?
            .put(url.clone())
            .headers(headers)
            .timeout(limit)
            .body(body)
            .send()
            .await;
        sent.map_err(|error| Error::from_send(url, error))
    }
}

/// Redirects after which the request is still a `PUT`.
fn keeps_method(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    )
}

/// The URL without query and fragment: signed upload URLs have their signature in the query.
fn without_query(url: &str) -> String {
    url.split(['?', '#']).next().unwrap_or_default().to_owned()
}
