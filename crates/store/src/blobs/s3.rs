//! Blobs in a bucket of a service with the S3 protocol, below a prefix.

use std::io;
use std::ops::Range;
use std::path::Path as LocalPath;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, FuturesUnordered};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::client::{HttpClient, HttpConnector};
use object_store::path::Path;
use object_store::{
    ClientOptions, GetOptions, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    RetryConfig,
};
use tidegate_core::blobs::{BlobError, BlobReader, Blobs};
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// The size of one part. S3 accepts at most 10,000 parts, so the largest file has 78 GiB.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// How many parts of a file are uploaded at the same time; each is in memory.
const CONCURRENT_PARTS: usize = 3;
/// How long transient failures are retried.
const RETRY_FOR: Duration = Duration::from_secs(60);
const RETRIES: usize = 5;

/// Blobs in an S3 bucket.
pub struct S3Blobs {
    store: Arc<dyn ObjectStore>,
    /// The prefix of all objects of this backend.
    root: Path,
}

/// The bucket or its configuration is invalid.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the bucket `{bucket}`")]
pub struct InvalidBucket {
    bucket: String,
    source: object_store::Error,
}

impl S3Blobs {
    /// A bucket with the credentials, region and endpoint of the `AWS_…` environment variables.
    /// Makes no request yet.
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
        Ok(Self::with_store(Arc::new(store), root))
    }

    /// Uses any object store.
    pub(crate) fn with_store(store: Arc<dyn ObjectStore>, root: &str) -> Self {
        Self {
            store,
            root: Path::from(root),
        }
    }

    /// A store in memory, for tests.
    #[cfg(any(test, feature = "conformance"))]
    pub fn in_memory(root: &str) -> Self {
        Self::with_store(Arc::new(object_store::memory::InMemory::new()), root)
    }

    fn object_path(&self, name: &str) -> Path {
        self.root.clone().join(name)
    }

    async fn put_parts(&self, path: &Path, file: &mut File, first: Bytes) -> Result<(), BlobError> {
        let mut upload = self.store.put_multipart(path).await.map_err(blob_error)?;
        let sent = send_parts(&mut *upload, file, first).await;
        let done = match sent {
            Ok(()) => upload.complete().await.map(drop).map_err(blob_error),
            Err(error) => Err(error),
        };
        if done.is_err() {
            // The parts of an incomplete upload are invisible, but may be billed.
            upload
                .abort()
                .await
                .inspect_err(|error| tracing::warn!(%error, "failed to abort incomplete upload"))
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
        if sending.len() >= CONCURRENT_PARTS {
            sending.try_next().await.map_err(blob_error)?;
        }
        part = next_part(file).await?;
    }
    sending.try_collect::<()>().await.map_err(blob_error)
}

/// Reads the next part of a local file; it is shorter at the end of the file.
async fn next_part(file: &mut File) -> Result<Bytes, BlobError> {
    let mut part = BytesMut::with_capacity(PART_BYTES);
    while part.len() < PART_BYTES && file.read_buf(&mut part).await.map_err(local_error)? > 0 {}
    Ok(part.freeze())
}

#[async_trait]
impl Blobs for S3Blobs {
    async fn put(&self, name: &str, file: &LocalPath) -> Result<(), BlobError> {
        let mut file = File::open(file).await.map_err(local_error)?;
        let (path, first) = (self.object_path(name), next_part(&mut file).await?);
        if first.len() < PART_BYTES {
            self.store
                .put(&path, first.into())
                .await
                .map(drop)
                .map_err(blob_error)
        } else {
            self.put_parts(&path, &mut file, first).await
        }
    }

    async fn read(&self, name: &str, range: Range<u64>) -> Result<Box<dyn BlobReader>, BlobError> {
        let path = self.object_path(name);
        if range.is_empty() {
            // An HTTP range cannot be empty.
            self.store.head(&path).await.map_err(blob_error)?;
            return Ok(Box::new(S3BlobReader(
                futures_util::stream::empty().boxed(),
            )));
        }
        let found = self
            .store
            .get_opts(&path, GetOptions::default().with_range(Some(range)))
            .await
            .map_err(blob_error)?;
        Ok(Box::new(S3BlobReader(found.into_stream())))
    }

    async fn remove(&self, name: &str) -> Result<(), BlobError> {
        match self.store.delete(&self.object_path(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(blob_error(error)),
        }
    }

    async fn names(&self) -> Result<Vec<String>, BlobError> {
        let found = self
            .store
            .list(Some(&self.root))
            .map_ok(|one| one.location.filename().map(str::to_owned));
        let names: Vec<Option<String>> = found.try_collect().await.map_err(list_error)?;
        Ok(names.into_iter().flatten().collect())
    }

    async fn names_older_than(&self, age: Duration) -> Result<Vec<String>, BlobError> {
        let found = self.store.list(Some(&self.root)).map_ok(|one| {
            let name = one.location.filename().map(str::to_owned);
            name.filter(|_| is_older_than(&one, age))
        });
        let names: Vec<Option<String>> = found.try_collect().await.map_err(list_error)?;
        Ok(names.into_iter().flatten().collect())
    }

    async fn remove_older_than(&self, name: &str, age: Duration) -> Result<(), BlobError> {
        // The time is read again: the same content may have been put a moment ago.
        match self.store.head(&self.object_path(name)).await {
            Ok(one) if is_older_than(&one, age) => self.remove(name).await,
            Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(blob_error(error)),
        }
    }
}

/// Whether an object was written at least `age` ago, by the clock of the service.
fn is_older_than(object: &ObjectMeta, age: Duration) -> bool {
    let written = SystemTime::from(object.last_modified);
    written.elapsed().is_ok_and(|since| since >= age)
}

struct S3BlobReader(BoxStream<'static, object_store::Result<Bytes>>);

#[async_trait]
impl BlobReader for S3BlobReader {
    async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        self.0.try_next().await.map_err(blob_error)
    }
}

/// The HTTP client of the whole server, so that its outbound guard applies.
#[derive(Debug)]
struct SharedHttpClient(reqwest::Client);

impl HttpConnector for SharedHttpClient {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

fn blob_error(error: object_store::Error) -> BlobError {
    match error {
        object_store::Error::NotFound { .. } => BlobError::Missing,
        // The error's text includes its causes.
        other => BlobError::Unavailable(other.to_string()),
    }
}

/// Listing fails with `NotFound` only if the bucket does not exist.
fn list_error(error: object_store::Error) -> BlobError {
    match blob_error(error) {
        BlobError::Unavailable(text) if text.contains("NoSuchBucket") => {
            BlobError::Unavailable("the bucket does not exist".to_owned())
        }
        BlobError::Missing => BlobError::Unavailable("the bucket does not exist".to_owned()),
        other => other,
    }
}

fn local_error(error: io::Error) -> BlobError {
    BlobError::Unavailable(format!("cannot read the file to upload: {error}"))
}
