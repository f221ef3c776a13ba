//! Publishes the files of an output: as data URIs, as uploads to `--upload-url`, or in the file
//! store.

use std::io::Seek;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use rustix::fs::OFlags;
use tidegate_core::policy::OutputFilePolicy;
use tidegate_core::{Account, JobId, OutputFile, OutputFileKind, OutputValue, chain};
use tidegate_net::Url;
use tidegate_net::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use tokio::io::AsyncReadExt;

use super::{Files, OutputUpload, OutputUploads};
use crate::files::store::{FileMetadata, FileStore, FileStoreError};
use crate::run_blocking::run_blocking_if_large;

/// The number of files of one output that are published concurrently.
const MAX_CONCURRENT_UPLOADS: usize = 8;
/// The largest file that becomes a data URI. The URI is held in memory and is a third larger.
pub const MAX_INLINE: u64 = 256 * 1024 * 1024;
/// The largest output that the child passes as a file.
const MAX_WHOLE_OUTPUT: u64 = 1024 * 1024 * 1024;
/// The buffer for copying a file into the store, in bytes.
const COPY_BUFFER: usize = 256 * 1024;

/// The job that produced the output.
#[derive(Clone, Copy)]
pub(crate) struct OutputOwner<'a> {
    pub(crate) account: &'a Account,
    pub(crate) id: &'a JobId,
    /// How its files are published.
    pub(crate) policy: OutputFilePolicy,
    /// Takes its files in place of the file store.
    pub(crate) uploads: Option<&'a dyn OutputUploads>,
}

impl Files {
    /// Publishes the files of an output and returns its JSON with an address for each of them. A
    /// large output is itself a file in `scratch`, the folder of the job.
    pub(crate) async fn publish(
        &self,
        value: OutputValue,
        job: OutputOwner<'_>,
        scratch: &Path,
    ) -> Result<Bytes, String> {
        let OutputValue { mut json, files } = value;
        let (whole, files): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|file| file.kind == OutputFileKind::WholeOutput);
        if let Some(whole) = whole.first() {
            json = self
                .read_whole(&whole.path, scratch)
                .await
                .map_err(|error| format!("failed to read the output: {error}"))?;
        }
        if files.is_empty() {
            return Ok(json);
        }
        let mut publishing = Vec::new();
        for file in &files {
            publishing.push(self.publish_file(file, job).boxed());
        }
        let addresses: Vec<String> = stream::iter(publishing)
            .buffered(MAX_CONCURRENT_UPLOADS)
            .try_collect()
            .await?;
        splice(&json, &files, &addresses)
            .ok_or_else(|| "the output does not match its list of files".to_owned())
    }

    async fn publish_file(
        &self,
        file: &OutputFile,
        job: OutputOwner<'_>,
    ) -> Result<String, String> {
        let opened = open(&file.path, OFlags::empty())
            .await
            .map_err(|error| unreadable(&file.path, &error))?;
        let opened = opened.ok_or_else(|| {
            format!(
                "output file `{}` is not a regular file",
                file.path.display()
            )
        })?;
        if !self.has_allowed_owner(&opened) {
            return Err(format!(
                "output file `{}` is not owned by the user that the model runs as",
                file.path.display()
            ));
        }
        let mime = file
            .mime_type
            .as_deref()
            .unwrap_or("application/octet-stream");
        if let Some(base) = &self.upload_url {
            return self.upload(base, file, opened, mime, job.id).await;
        }
        match (job.policy, job.uploads, &self.file_store) {
            (OutputFilePolicy::FileStore, Some(uploads), _) => {
                self.check_size(file, &opened)?;
                let upload = OutputUpload {
                    file: &opened.file,
                    size: opened.size,
                    name: &file_name(file),
                    mime,
                };
                match uploads.upload(upload).await? {
                    Some(address) => Ok(address),
                    None => inline(&file.path, opened.rewound(&file.path)?, mime).await,
                }
            }
            (OutputFilePolicy::FileStore, None, Some(file_store)) => {
                self.store_file(file_store, file, opened, mime, job).await
            }
            // Clients of the other APIs expect data URIs.
            (OutputFilePolicy::Inline, _, _) | (OutputFilePolicy::FileStore, None, None) => {
                inline(&file.path, opened, mime).await
            }
        }
    }

    /// Copies a file into the file store. It is not moved or linked: the model may have it open.
    async fn store_file(
        &self,
        file_store: &FileStore,
        file: &OutputFile,
        opened: OpenedFile,
        mime: &str,
        job: OutputOwner<'_>,
    ) -> Result<String, String> {
        self.check_size(file, &opened)?;
        let store_refusal = |error: FileStoreError| {
            format!(
                "failed to store output file `{}`: {}",
                file.path.display(),
                error.client_message()
            )
        };
        let mut writer = file_store
            .create_writer(opened.size, self.net.max_file())
            .await
            .map_err(store_refusal)?;
        let mut from = tokio::fs::File::from_std(opened.file);
        let mut piece = vec![0; COPY_BUFFER];
        loop {
            match from
                .read(&mut piece)
                .await
                .map_err(|error| unreadable(&file.path, &error))?
            {
                0 => break,
                count => writer.write(&piece[..count]).await.map_err(store_refusal)?,
            }
        }
        let metadata = FileMetadata::of_output(file_name(file), mime.to_owned());
        let stored = file_store
            .store_output(job.account, job.id, writer, metadata)
            .await
            .map_err(store_refusal)?;
        Ok(file_store.placeholder_for(job.account, job.id, &stored))
    }

    fn check_size(&self, file: &OutputFile, opened: &OpenedFile) -> Result<(), String> {
        let (path, size, limit) = (file.path.display(), opened.size, self.net.max_file());
        if size <= limit {
            Ok(())
        } else {
            Err(format!(
                "output file `{path}` has {size} bytes, more than the {limit} of `--max-file`"
            ))
        }
    }

    async fn upload(
        &self,
        base: &Url,
        file: &OutputFile,
        opened: OpenedFile,
        mime: &str,
        job: &JobId,
    ) -> Result<String, String> {
        self.check_size(file, &opened)?;
        let name = file_name(file);
        let mut url = base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(&name);
        }
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_str(mime)
                .unwrap_or(HeaderValue::from_static("application/octet-stream")),
        );
        if let Ok(id) = HeaderValue::from_str(job.as_str()) {
            headers.insert("x-prediction-id", id);
        }
        self.net
            .upload(&url, headers, &opened.file, opened.size)
            .await
            .map_err(|error| match error {
                tidegate_net::Error::Status { status, .. } => {
                    format!("Failed to upload output: upload returned status {status}")
                }
                other => format!("Failed to upload output: {}", chain(&other)),
            })
    }

    /// Reads an output that the child passes as a file. User code runs in the child and could name
    /// any file, so only a regular file below `scratch` is accepted.
    async fn read_whole(&self, path: &Path, scratch: &Path) -> std::io::Result<Bytes> {
        let foreign = || std::io::Error::other("not a file of the job");
        if !path.starts_with(scratch) || path.components().any(|part| part == Component::ParentDir)
        {
            return Err(foreign());
        }
        let opened = open(path, OFlags::NOFOLLOW)
            .await?
            .filter(|opened| self.has_allowed_owner(opened))
            .ok_or_else(foreign)?;
        read(opened, MAX_WHOLE_OUTPUT)
            .await?
            .map(Bytes::from)
            .ok_or_else(|| std::io::Error::other("larger than 1 GiB"))
    }

    fn has_allowed_owner(&self, opened: &OpenedFile) -> bool {
        self.owner.is_none_or(|owner| owner == opened.owner)
    }
}

/// An open file: the checks and the read apply to the same file.
struct OpenedFile {
    file: std::fs::File,
    size: u64,
    owner: u32,
}

impl OpenedFile {
    /// The file at its beginning, after an upload has read it.
    fn rewound(mut self, path: &Path) -> Result<Self, String> {
        self.file
            .rewind()
            .map_err(|error| unreadable(path, &error))?;
        Ok(self)
    }
}

/// Opens a file for reading; `None` if it is not a regular file. Reading a pipe or a device might
/// never end.
async fn open(path: &Path, flags: OFlags) -> std::io::Result<Option<OpenedFile>> {
    // Without NONBLOCK, opening a pipe would wait for a writer.
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = tokio::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
        .await?;
    let metadata = file.metadata().await?;
    if !metadata.is_file() || is_on_proc_or_sys(&file) {
        return Ok(None);
    }
    Ok(Some(OpenedFile {
        file: file.into_std().await,
        size: metadata.len(),
        owner: metadata.uid(),
    }))
}

/// Whether a file is on procfs or sysfs: in `/proc` the server would expose itself.
fn is_on_proc_or_sys(file: &impl std::os::fd::AsFd) -> bool {
    const PROC: u64 = 0x9fa0;
    const SYS: u64 = 0x6265_6572;
    rustix::fs::fstatfs(file).is_ok_and(|system| matches!(system.f_type as u64, PROC | SYS))
}

/// Reads a whole file; `None` if it is larger than `limit`. It may have grown since it was opened.
async fn read(opened: OpenedFile, limit: u64) -> std::io::Result<Option<Vec<u8>>> {
    if opened.size > limit {
        return Ok(None);
    }
    let mut body = Vec::with_capacity(usize::try_from(opened.size).unwrap_or(0) + 1);
    tokio::fs::File::from_std(opened.file)
        .take(limit + 1)
        .read_to_end(&mut body)
        .await?;
    Ok((body.len() as u64 <= limit).then_some(body))
}

fn file_name(file: &OutputFile) -> String {
    file.path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read output file `{}`: {error}", path.display())
}

async fn inline(path: &Path, opened: OpenedFile, mime: &str) -> Result<String, String> {
    let body = read(opened, MAX_INLINE)
        .await
        .map_err(|error| unreadable(path, &error))?;
    let body = body.ok_or_else(|| {
        format!("output file `{}` is larger than 256 MiB and cannot be returned as a data URI; serve with `--upload-url`", path.display())
    })?;
    let mut uri = format!("data:{mime};base64,");
    run_blocking_if_large(body.len(), || STANDARD.encode_string(&body, &mut uri));
    Ok(uri)
}

/// Replaces the empty string at the offset of each file by its address.
pub(super) fn splice(json: &Bytes, files: &[OutputFile], addresses: &[String]) -> Option<Bytes> {
    let mut spliced =
        Vec::with_capacity(json.len() + addresses.iter().map(String::len).sum::<usize>());
    let mut from = 0;
    for (file, address) in files.iter().zip(addresses) {
        spliced.extend_from_slice(json.get(from..file.offset)?);
        let end = file.offset.checked_add(2)?;
        if json.get(file.offset..end)? != b"\"\"" {
            return None;
        }
        serde_json::to_writer(&mut spliced, address).ok()?;
        from = end;
    }
    spliced.extend_from_slice(json.get(from..)?);
    Some(spliced.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_regular_files_are_opened() {
        let folder = std::env::temp_dir().join(format!("tidegate-outgoing-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (real, link, pipe) = (
            folder.join("real"),
            folder.join("link"),
            folder.join("pipe"),
        );
        std::fs::write(&real, "12345").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for special in [folder.as_path(), &pipe, Path::new("/dev/zero")] {
            assert!(
                open(special, OFlags::empty()).await.unwrap().is_none(),
                "{special:?}"
            );
        }
        // Models may return links to their files; the child itself creates none.
        let via_link = open(&link, OFlags::empty()).await.unwrap().unwrap();
        assert_eq!(read(via_link, 5).await.unwrap().unwrap(), b"12345");
        assert!(open(&link, OFlags::NOFOLLOW).await.is_err());
        assert!(
            read(open(&real, OFlags::empty()).await.unwrap().unwrap(), 4)
                .await
                .unwrap()
                .is_none()
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn file(offset: usize) -> OutputFile {
        OutputFile {
            path: "/x".into(),
            mime_type: None,
            offset,
            kind: OutputFileKind::User,
        }
    }

    #[tokio::test]
    async fn files_of_other_users_are_refused() {
        let path = std::env::temp_dir().join(format!("tidegate-owner-{}", std::process::id()));
        std::fs::write(&path, "12345").unwrap();
        let own_uid = std::fs::metadata(&path).unwrap().uid();
        let net = std::sync::Arc::new(tidegate_net::Client::new(tidegate_net::Config::default()));
        let output = OutputFile {
            path: path.clone(),
            ..file(0)
        };
        let id = JobId::parse("a").unwrap();
        let job = OutputOwner {
            account: &Account::ANONYMOUS,
            id: &id,
            policy: OutputFilePolicy::FileStore,
            uploads: None,
        };
        for (owner, allowed) in [
            (None, true),
            (Some(own_uid), true),
            (Some(own_uid + 1), false),
        ] {
            let files = Files {
                net: net.clone(),
                upload_url: None,
                owner,
                file_store: None,
            };
            assert_eq!(
                files.publish_file(&output, job).await.is_ok(),
                allowed,
                "{owner:?}"
            );
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn addresses_replace_empty_strings() {
        let json = Bytes::from_static(br#"{"a":"","b":["",""]}"#);
        let spliced = splice(&json, &[file(5), file(13)], &["A".into(), "\"B".into()]).unwrap();
        assert_eq!(spliced, &br#"{"a":"A","b":["\"B",""]}"#[..]);
    }

    #[test]
    fn wrong_offsets_are_refused() {
        let json = Bytes::from_static(br#"["","x"]"#);
        for offset in [0, 2, 4, 7, 8, 100, usize::MAX] {
            assert_eq!(
                splice(&json, &[file(offset)], &["A".into()]),
                None,
                "{offset}"
            );
        }
    }
}
