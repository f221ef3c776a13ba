//! The request to run a job, in the form that a child receives.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_core::{JobKind, Work};
use tidegate_ipc::slot::{self, PredictRequest, WireJobKind};
use tidegate_ipc::{SPILL_ABOVE, frame};
use tokio::io::AsyncWriteExt;

use super::outgoing_frame::OutgoingFrame;
use crate::scratch::Scratch;

/// The part of a message around an item, at most.
const ENVELOPE: usize = 64;

/// What a child needs besides the request itself: the folder of the job, and the file of a large input.
#[derive(Default)]
pub(crate) struct JobFiles {
    /// The file of a large input. The child removes it, unless it dies before.
    spilled: Option<PathBuf>,
}

impl JobFiles {
    /// Creates them. On an error the job cannot be sent.
    pub(crate) async fn create(&mut self, work: &Work, scratch: &Scratch) -> Result<(), String> {
        scratch
            .chown_job_dir(&work.scratch)
            .map_err(|error| format!("could not create a folder for the job's files: {error}"))?;
        if work.input.len() <= SPILL_ABOVE {
            return Ok(());
        }
        let path = work.scratch.with_extension("input");
        let written = spill(&path, &work.input)
            .await
            .and_then(|()| scratch.chown(&path));
        self.spilled = Some(path);
        written.map_err(|error| format!("could not write the input to a file: {error}"))
    }

    /// The request as a frame.
    pub(crate) fn frame(&self, work: &Work) -> Result<OutgoingFrame, String> {
        let frame = OutgoingFrame::new(&self.request(work), self.inline_input(work));
        check_length(frame.len())?;
        Ok(frame)
    }

    /// The request as an item of a batch.
    pub(crate) fn item(&self, work: &Work) -> Result<Vec<u8>, String> {
        let input = self.inline_input(work);
        let mut item = Vec::with_capacity(input.len() + 256);
        slot::append_item(&mut item, &self.request(work), &input);
        check_length(item.len() + ENVELOPE)?;
        Ok(item)
    }

    fn request<'a>(&'a self, work: &'a Work) -> PredictRequest<'a> {
        PredictRequest {
            id: work.id.as_str().into(),
            kind: match work.kind {
                JobKind::Prediction => WireJobKind::Prediction,
                JobKind::Training => WireJobKind::Training,
            },
            input: None,
            input_file: self.spilled.as_deref().map(Path::to_string_lossy),
            output_dir: work.scratch.to_string_lossy(),
            files: work
                .files
                .iter()
                .map(|(pointer, path)| (pointer.clone(), path.to_string_lossy().into_owned()))
                .collect(),
            context: work.context.clone(),
        }
    }

    /// The input as a part of the request.
    fn inline_input(&self, work: &Work) -> Bytes {
        if self.spilled.is_some() {
            Bytes::from_static(b"null")
        } else {
            work.input.clone()
        }
    }
}

fn check_length(length: usize) -> Result<(), String> {
    if length > frame::MAX {
        return Err(format!(
            "the job's context and files have more than {} bytes, the limit of one message",
            frame::MAX
        ));
    }
    Ok(())
}

async fn spill(path: &Path, input: &[u8]) -> std::io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).await?;
    file.write_all(input).await?;
    file.flush().await
}

impl Drop for JobFiles {
    fn drop(&mut self) {
        if let Some(path) = &self.spilled {
            // Usually the child has removed it already.
            std::fs::remove_file(path).ok();
        }
    }
}
