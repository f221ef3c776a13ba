//! Responses with the content of output files as data URIs, for Replicate's clients over plain http:
//! they turn a string of an output into a file object only if it begins with `https:` or `data:`.
//!
//! The content is encoded while the response is written, so a response takes little memory.

use std::sync::Arc;
use std::vec;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tidegate_core::blobs::{BlobError, BlobReader};
use tidegate_service::{FileStore, PublishedFile};

use super::file_links::{FileLinks, OutputJob};
use super::origin::Origin;
use crate::shared::response::json;

/// The bytes of all files that become data URIs in one response. Further files keep their URLs: npm's
/// client cannot parse strings of more than 512 MiB.
const MAX_INLINE_BYTES: u64 = 256 * 1024 * 1024;
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

impl FileLinks {
    /// A response with a data URI in place of each placeholder in `body`.
    pub(super) fn response_with_data_uris(
        &self,
        status: StatusCode,
        job: &OutputJob<'_>,
        body: Bytes,
        origin: &Origin,
    ) -> Response {
        let found = self
            .file_store
            .find_placeholders(job.account, job.id, &body);
        if found.is_empty() {
            return json(status, body);
        }
        let (mut pieces, mut from, mut left) = (Vec::new(), 0, MAX_INLINE_BYTES);
        for (range, file) in found {
            pieces.push(BodyPiece::Text(body.slice(from..range.start)));
            from = range.end;
            if let Some(rest) = left.checked_sub(file.size) {
                left = rest;
                let start = format!("data:{};base64,", content_type(&file));
                pieces.push(BodyPiece::Text(start.into()));
                pieces.push(BodyPiece::File(file));
            } else {
                // A URL contains nothing that JSON escapes.
                pieces.push(BodyPiece::Text(self.output_url(job, &file, origin).into()));
            }
        }
        pieces.push(BodyPiece::Text(body.slice(from..)));
        let length: u64 = pieces.iter().map(BodyPiece::len).sum();
        let mut response = Response::new(stream_of(pieces, Arc::clone(&self.file_store)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_LENGTH, length.into());
        response
    }
}

/// A part of a response body.
enum BodyPiece {
    Text(Bytes),
    /// The content of a file in base64.
    File(PublishedFile),
}

impl BodyPiece {
    fn len(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(file) => file.size.div_ceil(3) * 4,
        }
    }
}

/// Reads files one after the other. An error breaks the connection, so that the client notices that the
/// response is incomplete.
fn stream_of(pieces: Vec<BodyPiece>, file_store: Arc<FileStore>) -> Body {
    let body = PiecewiseBody {
        pieces: pieces.into_iter(),
        file_store,
        reading: None,
    };
    Body::from_stream(stream::unfold(body, |mut body| async move {
        let next = body.next().await.inspect_err(
            |error| tracing::error!(%error, "failed to read output file for a response"),
        );
        Some((next.transpose()?, body))
    }))
}

struct PiecewiseBody {
    pieces: vec::IntoIter<BodyPiece>,
    file_store: Arc<FileStore>,
    reading: Option<Base64Reader>,
}

impl PiecewiseBody {
    async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        loop {
            if let Some(reader) = &mut self.reading {
                if let Some(bytes) = reader.next().await? {
                    return Ok(Some(bytes));
                }
                self.reading = None;
            }
            match self.pieces.next() {
                None => return Ok(None),
                Some(BodyPiece::Text(text)) => return Ok(Some(text)),
                Some(BodyPiece::File(file)) => {
                    let blob = self.file_store.read(&file.sha256, 0..file.size).await?;
                    self.reading = Some(Base64Reader::new(blob));
                }
            }
        }
    }
}

/// The content of a blob in base64.
struct Base64Reader {
    blob: Box<dyn BlobReader>,
    /// Bytes that do not fill a group of three.
    rest: BytesMut,
    has_ended: bool,
}

impl Base64Reader {
    fn new(blob: Box<dyn BlobReader>) -> Self {
        Self {
            blob,
            rest: BytesMut::new(),
            has_ended: false,
        }
    }

    async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
        while !self.has_ended {
            match self.blob.next().await? {
                Some(bytes) => {
                    self.rest.extend_from_slice(&bytes);
                    let whole = self.rest.split_to(self.rest.len() / 3 * 3);
                    if !whole.is_empty() {
                        return Ok(Some(STANDARD.encode(whole).into()));
                    }
                }
                None => self.has_ended = true,
            }
        }
        let last = self.rest.split();
        Ok((!last.is_empty()).then(|| STANDARD.encode(last).into()))
    }
}

/// The media type of a file, if it can be part of a data URI.
fn content_type(file: &PublishedFile) -> &str {
    let is_plain = file
        .content_type
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"/!#$&^_.+-;=".contains(&byte));
    if is_plain && !file.content_type.is_empty() {
        &file.content_type
    } else {
        DEFAULT_CONTENT_TYPE
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    struct Chunks(VecDeque<Bytes>);

    #[async_trait::async_trait]
    impl BlobReader for Chunks {
        async fn next(&mut self) -> Result<Option<Bytes>, BlobError> {
            Ok(self.0.pop_front())
        }
    }

    #[tokio::test]
    async fn the_encoding_does_not_depend_on_the_chunks() {
        let content: Bytes = (0..=255u8).collect();
        for (length, chunk) in [
            (0, 1),
            (1, 1),
            (2, 1),
            (3, 2),
            (4, 3),
            (256, 1),
            (256, 7),
            (255, 100),
        ] {
            let content = content.slice(..length);
            let chunks = content.chunks(chunk).map(Bytes::copy_from_slice).collect();
            let mut reader = Base64Reader::new(Box::new(Chunks(chunks)));
            let mut encoded = Vec::new();
            while let Some(bytes) = reader.next().await.unwrap() {
                assert!(!bytes.is_empty());
                encoded.extend_from_slice(&bytes);
            }
            assert_eq!(
                encoded,
                STANDARD.encode(&content).as_bytes(),
                "{length} {chunk}"
            );
        }
    }
}
