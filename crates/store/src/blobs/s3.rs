//! Bytes in a bucket of a store that speaks S3's protocol, below a prefix of their own.

use std::io;
use std::ops::Range;
use std::path::Path as LocalPath;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, MultipartUpload, ObjectStore, ObjectStoreExt, RetryConfig,
};
use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// What is sent in one go. S3 takes at most 10,000 parts, so the largest file has 78 GiB.
const PART: usize = 8 * 1024 * 1024;
/// Parts of one file on their way at once; each is in memory.
const AT_ONCE: usize = 3;
/// How long is tried again what failed for a passing reason.
const RETRY_FOR: Duration = Duration::from_secs(60);
const RETRIES: usize = 5;

/// A bucket with the bytes of files.
pub struct S3Blobs {
    store: Arc<dyn ObjectStore>,
    /// Everything below it is ours.
    root: Path,
}

/// A place in a bucket cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the bucket `{bucket}` cannot be used")]
pub struct InvalidBucket {
    bucket: String,
    source: object_store::Error,
}

impl S3Blobs {
    /// A bucket, with the credentials, the region and the endpoint that the usual variables `AWS_…` say. Nothing is
    /// called yet.
    pub fn connect(
        bucket: &str,
        root: &str,
        client: reqwest::Client,
    ) -> Result<Self, InvalidBucket> {
        let retry = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_FOR,
            ..RetryConfig::default()
        };
        let builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            .with_http_connector(SharedHttpClient(client));
        let store = builder.build().map_err(|source| InvalidBucket {
            bucket: bucket.to_owned(),
            source,
        })?;
        Ok(Self::over(Arc::new(store), root))
    }

    /// Any store that its maker speaks to.
    pub(crate) fn over(store: Arc<dyn ObjectStore>, root: &str) -> Self {
        Self {
            store,
            root: Path::from(root),
        }
    }

    /// A store in memory, for tests.
    #[cfg(any(test, feature = "conformance"))]
    pub fn in_memory(root: &str) -> Self {
        Self::over(Arc::new(object_store::memory::InMemory::new()), root)
    }

    fn place(&self, name: &str) -> Path {
        self.root.clone().join(name)
    }

    async fn put_parts(
        &self,
        place: &Path,
        file: &mut File,
        first: Bytes,
    ) -> Result<(), BlobError> {
        let mut upload = self.store.put_multipart(place).await.map_err(fault)?;
        let sent = send_parts(&mut *upload, file, first).await;
        let done = match sent {
            Ok(()) => upload.complete().await.map(drop).map_err(fault),
            Err(error) => Err(error),
        };
        if done.is_err() {
            // What was sent is not seen by anybody, but may cost.
            upload
                .abort()
                .await
                .inspect_err(|error| tracing::warn!(%error, "half a file is left in the bucket"))
                .ok();
        }
        done
    }
}

async fn send_parts(
    upload: &mut dyn MultipartUpload,
    file: &mut File,
    first: Bytes,
) -> Result<(), BlobError> {
    let mut sending = FuturesUnordered::new();
    let mut part = first;
    while !part.is_empty() {
        sending.push(upload.put_part(part.into()));
        if sending.len() >= AT_ONCE {
            sending.try_next().await.map_err(fault)?;
        }
        part = next_part(file).await?;
    }
    sending.try_collect::<()>().await.map_err(fault)
}

/// The next bytes of a local file, as many as are sent in one go; fewer at its end.
async fn next_part(file: &mut File) -> Result<Bytes, BlobError> {
    let mut part = BytesMut::with_capacity(PART);
    while part.len() < PART && file.read_buf(&mut part).await.map_err(unreadable)? > 0 {}
    Ok(part.freeze())
}

#[async_trait]
impl Blobs for S3Blobs {
    async fn put(&self, name: &str, file: &LocalPath) -> Result<(), BlobError> {
        let mut file = File::open(file).await.map_err(unreadable)?;
        let (place, first) = (self.place(name), next_part(&mut file).await?);
        if first.len() < PART {
            self.store
                .put(&place, first.into())
                .await
                .map(drop)
                .map_err(fault)
        } else {
            self.put_parts(&place, &mut file, first).await
        }
    }

    async fn read(&self, name: &str, range: Range<u64>) -> Result<Box<dyn BlobReader>, BlobError> {
        let place = self.place(name);
        if range.is_empty() {
            // Nobody can be asked for no bytes.
            self.store.head(&place).await.map_err(fault)?;
            return Ok(Box::new(S3BlobReader(
                futures_util::stream::empty().boxed(),
            )));
        }
        let found = self
            .store
            .get_opts(&place, GetOptions::default().with_range(Some(range)))
            .await
            .map_err(fault)?;
        Ok(Box::new(S3BlobReader(found.into_stream())))
    }

    async fn remove(&self, name: &str) -> Result<(), BlobError> {
        match self.store.delete(&self.place(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(fault(error)),
        }
    }

    async fn names(&self) -> Result<Vec<String>, BlobError> {
        let found = self
            .store
            .list(Some(&self.root))
            .map_ok(|one| one.location.filename().map(str::to_owned));
        let names: Vec<Option<String>> = found.try_collect().await.map_err(no_bucket)?;
        Ok(names.into_iter().flatten().collect())
    }
}

struct S3BlobReader(BoxStream<'static, object_store::Result<Bytes>>);

#[async_trait]
impl BlobReader for S3BlobReader {
    async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        self.0.try_next().await.map_err(fault)
    }
}

/// The way out is the one of the whole server.
#[derive(Debug)]
struct SharedHttpClient(reqwest::Client);

impl HttpConnector for SharedHttpClient {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

fn fault(error: object_store::Error) -> BlobError {
    match error {
        object_store::Error::NotFound { .. } => BlobError::Missing,
        // Its text has those of its causes.
        other => BlobError::Unavailable(other.to_string()),
    }
}

/// A list fails for this reason only when there is nothing to be listed.
fn no_bucket(error: object_store::Error) -> BlobError {
    match fault(error) {
        BlobError::Unavailable(text) if text.contains("NoSuchBucket") => {
            BlobError::Unavailable("there is no such bucket".to_owned())
        }
        BlobError::Missing => BlobError::Unavailable("there is no such bucket".to_owned()),
        other => other,
    }
}

fn unreadable(error: io::Error) -> BlobError {
    BlobError::Unavailable(format!("the file on its way there cannot be read: {error}"))
}
