//! Files that clients upload to use them in inputs.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Path, RawQuery, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use multer::{Field, Multipart};
use serde_json::value::RawValue;
use tidegate_core::file_index::StoredFile;
use tidegate_service::{FileMetadata, FileStore, FileStoreError, FileWriter};

use super::AppState;
use super::file_links::FileLinks;
use super::origin::Origin;
use super::paging::{SortKey, page};
use super::render::timestamp;
use super::reply::{self, ApiError};
use super::wire::{self, InvalidField};
use crate::access::Identity;
use crate::shared::body_limit::BodyError;

/// The largest part of a form other than the file.
const MAX_TEXT: usize = 64 * 1024;
/// The size of a form without its file, at most.
const FORM_OVERHEAD: u64 = 2 * MAX_TEXT as u64;
/// The longest file name, in bytes.
const MAX_NAME: usize = 255;
/// The most parts of a form.
const MAX_PARTS: usize = 16;
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

impl AppState {
    pub(super) fn files(&self) -> Result<&FileLinks, ApiError> {
        self.config.files.as_deref().ok_or(ApiError::NotConfigured(
            "This server stores no files; start it with `--data-dir`.",
        ))
    }
}

/// `POST /v1/files`
pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    origin: Origin,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let links = state.files()?;
    let limit = UploadLimit {
        max_file: state.config.max_file,
        stall_timeout: state.config.body_timeout,
    };
    let at_least = body.size_hint().lower().saturating_sub(FORM_OVERHEAD);
    if at_least > limit.max_file {
        return Err(limit.too_large());
    }
    links
        .file_store
        .check_quota(&caller.account, at_least)
        .await?;
    let form = UploadForm::read(&links.file_store, &headers, body, limit).await?;
    let content = form
        .content
        .ok_or_else(|| invalid("content", "content is required"))?;
    let name = form.name.unwrap_or_else(|| "file".to_owned());
    if name.len() > MAX_NAME {
        return Err(invalid(
            "filename",
            "the name of the file has more than 255 bytes",
        ));
    }
    let content_type = form
        .content_type
        .unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned());
    let label = FileMetadata {
        name,
        content_type,
        metadata: metadata(form.metadata)?,
    };
    let file = links
        .file_store
        .store_upload(&caller.account, content, label)
        .await?;
    Ok(reply::created(&render(&file, &caller, links, &origin)))
}

/// `GET /v1/files`
pub(super) async fn list(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    origin: Origin,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let links = state.files()?;
    let sort_key = |file: &Arc<StoredFile>| SortKey {
        at: file.created_at,
        name: file.id.clone(),
    };
    let files = links.file_store.list_uploads(&caller.account).await?;
    let page = page(
        files,
        sort_key,
        query.as_deref().unwrap_or_default(),
        origin.url(&["v1", "files"]),
    );
    Ok(reply::ok(
        &page.each(|file| render(file, &caller, links, &origin)),
    ))
}

/// `GET /v1/files/{id}`
pub(super) async fn show(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    origin: Origin,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let links = state.files()?;
    let file = links
        .file_store
        .find_upload(&caller.account, &id)
        .await?
        .ok_or(ApiError::Unknown("file"))?;
    Ok(reply::ok(&render(&file, &caller, links, &origin)))
}

/// `DELETE /v1/files/{id}`
pub(super) async fn remove(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    let file_store = &state.files()?.file_store;
    if file_store.remove_upload(&caller.account, &id).await? {
        Ok(StatusCode::NO_CONTENT.into_response())
    } else {
        Err(ApiError::Unknown("file"))
    }
}

fn render<'a>(
    file: &'a StoredFile,
    caller: &Identity,
    links: &FileLinks,
    origin: &Origin,
) -> wire::File<'a> {
    wire::File {
        id: &file.id,
        name: &file.name,
        content_type: &file.content_type,
        size: file.size,
        etag: &file.md5,
        checksums: wire::Checksums {
            sha256: &file.sha256,
            md5: &file.md5,
        },
        metadata: &file.metadata,
        created_at: timestamp(file.created_at),
        expires_at: file.expires_at.map(timestamp),
        urls: wire::FileUrls {
            get: origin.to(&["v1", "files", &file.id]),
            download: links.upload_url(origin, &caller.account, file),
        },
    }
}

/// The limits of an upload.
#[derive(Debug, Clone, Copy)]
struct UploadLimit {
    /// The largest file, in bytes.
    max_file: u64,
    /// How long the body may make no progress.
    stall_timeout: Duration,
}

impl UploadLimit {
    fn too_large(self) -> ApiError {
        FileStoreError::TooLarge(self.max_file).into()
    }
}

/// The parts of an upload form.
#[derive(Default)]
struct UploadForm {
    content: Option<FileWriter>,
    name: Option<String>,
    content_type: Option<String>,
    metadata: Option<String>,
}

impl UploadForm {
    async fn read(
        file_store: &FileStore,
        headers: &HeaderMap,
        body: Body,
        limit: UploadLimit,
    ) -> Result<Self, ApiError> {
        let given = headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let boundary = multer::parse_boundary(given)
            .map_err(|error| ApiError::Form(format!("send a multipart/form-data body: {error}")))?;
        let size =
            multer::SizeLimit::new().whole_stream(limit.max_file.saturating_add(FORM_OVERHEAD));
        let constraints = multer::Constraints::new().size_limit(size);
        let expected = body.size_hint().lower();
        let mut parts = Multipart::with_constraints(body.into_data_stream(), boundary, constraints);
        let (mut form, mut fields) = (Self::default(), (None, None));
        for _ in 0..MAX_PARTS {
            let Some(mut part) = with_stall_timeout(limit, parts.next_field()).await? else {
                // A field of its own takes precedence over the headers of the file's part.
                form.name = fields.0.or(form.name);
                form.content_type = fields.1.or(form.content_type);
                return Ok(form);
            };
            match part.name() {
                Some("content") if form.content.is_some() => {
                    return Err(invalid("content", "there is more than one file"));
                }
                Some("content") => {
                    form.name = part.file_name().map(str::to_owned);
                    form.content_type = part.content_type().map(ToString::to_string);
                    let mut writer = file_store.create_writer(expected, limit.max_file).await?;
                    while let Some(bytes) = with_stall_timeout(limit, part.chunk()).await? {
                        writer.write(&bytes).await?;
                    }
                    form.content = Some(writer);
                }
                Some("metadata") => form.metadata = Some(text("metadata", part, limit).await?),
                Some("filename") => fields.0 = Some(text("filename", part, limit).await?),
                Some("type") => fields.1 = Some(text("type", part, limit).await?),
                Some(_) | None => {}
            }
        }
        Err(ApiError::Form(format!(
            "the form has more than {MAX_PARTS} parts"
        )))
    }
}

/// Reads a text part with this name.
async fn text(
    name: &'static str,
    mut part: Field<'_>,
    limit: UploadLimit,
) -> Result<String, ApiError> {
    let mut all = Vec::new();
    while let Some(bytes) = with_stall_timeout(limit, part.chunk()).await? {
        all.extend_from_slice(&bytes);
        if all.len() > MAX_TEXT {
            return Err(BodyError::PartTooLarge {
                part: name,
                limit: MAX_TEXT,
            }
            .into());
        }
    }
    String::from_utf8(all).map_err(|_| ApiError::Form("a part of the form is not UTF-8".to_owned()))
}

/// Ends a request that sends nothing for too long.
async fn with_stall_timeout<T>(
    limit: UploadLimit,
    next: impl Future<Output = multer::Result<T>>,
) -> Result<T, ApiError> {
    match tokio::time::timeout(limit.stall_timeout, next).await {
        Ok(Ok(next)) => Ok(next),
        Ok(Err(multer::Error::StreamSizeExceeded { .. })) => Err(limit.too_large()),
        Ok(Err(error)) => Err(ApiError::Form(format!("the form cannot be read: {error}"))),
        Err(_) => Err(BodyError::Stalled {
            after: limit.stall_timeout,
            flag: Some("--body-timeout"),
        }
        .into()),
    }
}

/// The metadata of a file: a JSON object, empty by default.
fn metadata(text: Option<String>) -> Result<Box<RawValue>, ApiError> {
    let text = text
        .filter(|text| !text.trim().is_empty())
        .unwrap_or_else(|| "{}".to_owned());
    match serde_json::from_str::<Box<RawValue>>(&text) {
        Ok(value) if value.get().starts_with('{') => Ok(value),
        Ok(_) | Err(_) => Err(invalid("metadata", "metadata must be a JSON object")),
    }
}

fn invalid(field: &str, description: &str) -> ApiError {
    ApiError::Fields(vec![InvalidField {
        kind: "invalid",
        field: field.to_owned(),
        description: description.to_owned(),
    }])
}
