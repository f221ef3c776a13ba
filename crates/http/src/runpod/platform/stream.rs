//! `GET /v2/{endpoint}/stream/{id}`: the parts of a job's output that no client has read yet.

use std::time::Duration;

use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use tidegate_service::ReadPosition;

use super::client_request::ClientRequest;
use super::confirmed_body::confirmed_response;
use super::limits::RequestKind;
use super::render;
use super::reply::ApiError;
use crate::shared::json_object::JsonObjectWriter;

/// How long a request waits for new parts. One client polls without a pause, others time out after ten
/// seconds.
const HOLD: Duration = Duration::from_secs(1);

pub(super) async fn stream(request: ClientRequest) -> Result<Response, ApiError> {
    let endpoint = request.access_endpoint(RequestKind::Stream)?;
    let job = request.job(&endpoint).await?;
    let (cursors, account) = (&request.app.config.stream_cursors, &request.caller.account);
    let until = tokio::time::Instant::now() + HOLD;
    loop {
        let read = cursors.position(account, job.id());
        let seen = ReadPosition {
            outputs: read,
            logs: usize::MAX,
        };
        let mut progress = tokio::time::timeout_at(until, job.progress(seen)).await;
        let now = job.snapshot_without_output();
        if now.status.is_terminal() {
            // The job may have ended meanwhile: some clients do not ask again after the end, so the
            // response with the end has all parts.
            progress = Ok(job.progress(seen).await);
        }
        let parts = match progress {
            // A returned output is not part of a stream.
            Ok(progress) if is_streamed(&now) => progress.outputs,
            Ok(_) | Err(_) => Vec::new(),
        };
        if let Some(reading) = cursors.begin_read(account, job.id(), read, parts.len()) {
            let mut body = JsonObjectWriter::with_capacity(parts.iter().map(Bytes::len).sum());
            return Ok(confirmed_response(
                body.field("status", render::status(&now))
                    .raw("stream", Some(&list(&parts)))
                    .finish(),
                reading,
            ));
        }
    }
}

fn list(parts: &[Bytes]) -> Bytes {
    let mut list =
        BytesMut::with_capacity(parts.iter().map(|part| part.len() + 12).sum::<usize>() + 2);
    list.put_u8(b'[');
    for (place, part) in parts.iter().enumerate() {
        list.put_slice(if place > 0 {
            b",{\"output\":"
        } else {
            b"{\"output\":"
        });
        list.put_slice(part);
        list.put_u8(b'}');
    }
    list.put_u8(b']');
    list.freeze()
}

fn is_streamed(job: &tidegate_service::Snapshot) -> bool {
    job.remote.as_ref().is_some_and(|remote| remote.streamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_wrapped() {
        assert_eq!(list(&[]), "[]");
        assert_eq!(
            list(&[Bytes::from("1"), Bytes::from("[2]")]),
            r#"[{"output":1},{"output":[2]}]"#
        );
    }
}
