//! Uploads of outputs to the place that the operator named, streamed from the disk.

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
    /// Uploads the first `size` bytes of an open file with `PUT`; the answer is where it can be found
    /// from now on.
    pub async fn upload(
        &self,
        url: &Url,
        headers: HeaderMap,
        file: &File,
        size: u64,
    ) -> Result<String, Error> {
        let mut url = url.clone();
        // The client itself cannot send a stream twice.
        for _ in 0..=MAX_REDIRECTS {
            let answer = self.put(&url, headers.clone(), file, size).await?;
            let location = answer
                .headers()
                .get(LOCATION)
                .and_then(|location| location.to_str().ok());
            match (answer.status(), location) {
                (status, location) if status.is_success() => {
                    return Ok(public(location.unwrap_or(answer.url().as_str())));
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
        // Stores of objects want to know the length before; a stream alone would be sent in chunks.
        headers.insert(CONTENT_LENGTH, size.into());
        let body = Body::wrap_stream(ReaderStream::with_capacity(file.take(size), CHUNK));
        let limit = self.config.upload_timeout + Duration::from_secs(size >> 20);
        let sent = self
            .own(url)?
            .put(url.clone())
            .headers(headers)
            .timeout(limit)
            .body(body)
            .send()
            .await;
        sent.map_err(|error| Error::from_send(url, error))
    }
}

/// Redirects after which a `PUT` is still a `PUT`.
fn keeps_method(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    )
}

/// Signed upload addresses carry their signature in the query; it is not for others.
fn public(place: &str) -> String {
    place
        .split(['?', '#'])
        .next()
        .unwrap_or_default()
        .to_owned()
}
