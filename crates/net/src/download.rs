//! Downloads input files, with limits on size, stalls, speed and duration.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::header::{HeaderMap, USER_AGENT};
use reqwest::{RequestBuilder, Response};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};
use url::Url;

use crate::error::host_of;
use crate::{Client, Error, MinSpeed};

impl Client {
    /// Downloads `url` into a new file at `path`, readable by its owner only.
    pub async fn download(&self, url: &Url, path: &Path) -> Result<(), Error> {
        let limit = self.config.download_timeout;
        let too_long = |_| Error::TooLong {
            host: host_of(url),
            limit,
        };
        timeout(limit, self.download_bounded(url, path))
            .await
            .map_err(too_long)?
    }

    /// Downloads a file from a server that the operator chose. `path` decides from the headers of the
    /// response where the new file is; returns its path.
    pub async fn download_from_operator(
        &self,
        url: &Url,
        headers: HeaderMap,
        path: impl FnOnce(&HeaderMap) -> PathBuf,
    ) -> Result<PathBuf, Error> {
        let limit = self.config.download_timeout;
        let download = async {
            let request = self.operator_client(url)?.get(url.clone());
            let response = self.respond(url, request.headers(headers)).await?;
            let path = path(response.headers());
            self.save(url, response, &path).await?;
            Ok(path)
        };
        let too_long = |_| Error::TooLong {
            host: host_of(url),
            limit,
        };
        timeout(limit, download).await.map_err(too_long)?
    }

    async fn download_bounded(&self, url: &Url, path: &Path) -> Result<(), Error> {
        let response = self.begin(url).await?;
        self.save(url, response, path).await
    }

    /// Writes the body of a response to a new file.
    async fn save(&self, url: &Url, response: Response, path: &Path) -> Result<(), Error> {
        let (limit, stall) = (self.config.max_file, self.config.download_stall_timeout);
        let too_large = || Error::TooLarge {
            host: host_of(url),
            limit,
        };
        if response
            .content_length()
            .is_some_and(|length| length > limit)
        {
            return Err(too_large());
        }
        let mut file = new_private(path).await.map_err(Error::unwritable)?;
        let (mut body, mut total) = (response.bytes_stream(), 0u64);
        let mut speed = SpeedMeter::new(self.config.download_min_speed);
        while let Some(chunk) = timeout(stall, body.next())
            .await
            .map_err(|_| stalled(url, stall))?
        {
            let chunk = chunk.map_err(|source| Error::Incomplete {
                host: host_of(url),
                source: source.without_url(),
            })?;
            total += chunk.len() as u64;
            if total > limit {
                return Err(too_large());
            }
            speed
                .check(chunk.len() as u64)
                .map_err(|min_speed| Error::TooSlow {
                    host: host_of(url),
                    bytes: min_speed.bytes,
                    window: min_speed.window,
                })?;
            file.write_all(&chunk).await.map_err(Error::unwritable)?;
        }
        file.flush().await.map_err(Error::unwritable)
    }

    async fn begin(&self, url: &Url) -> Result<Response, Error> {
        self.guard(url)?;
        let mut request = self.download_client(url)?.get(url.clone());
        if let Some(name) = &self.config.download_user_agent {
            request = request.header(USER_AGENT, name);
        }
        self.respond(url, request).await
    }

    /// The response to a request, if its status is a success.
    async fn respond(&self, url: &Url, request: RequestBuilder) -> Result<Response, Error> {
        let stall = self.config.download_stall_timeout;
        let response = timeout(stall, request.send())
            .await
            .map_err(|_| stalled(url, stall))?;
        let response = response.map_err(|error| Error::from_send(url, error))?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(Error::Status {
                host: host_of(url),
                status,
            }),
        }
    }
}

fn stalled(url: &Url, after: Duration) -> Error {
    Error::Stalled {
        host: host_of(url),
        after,
    }
}

/// Measures the bytes received in the current time window.
struct SpeedMeter {
    min_speed: MinSpeed,
    since: Instant,
    bytes: u64,
}

impl SpeedMeter {
    fn new(min_speed: MinSpeed) -> Self {
        Self {
            min_speed,
            since: Instant::now(),
            bytes: 0,
        }
    }

    fn check(&mut self, more: u64) -> Result<(), MinSpeed> {
        self.bytes += more;
        if self.since.elapsed() < self.min_speed.window {
            return Ok(());
        }
        if self.bytes < self.min_speed.bytes {
            return Err(self.min_speed);
        }
        *self = Self::new(self.min_speed);
        Ok(())
    }
}

async fn new_private(path: &Path) -> std::io::Result<tokio::fs::File> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).await
}
