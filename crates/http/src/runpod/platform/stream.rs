//! `GET /v2/{endpoint}/stream/{id}`: what a job has given and nobody has read yet.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use tidegate_core::{Account, JobId};
use tidegate_remote::note;
use tidegate_service::Seen;

use super::limits::Asked;
use super::reply::Trouble;
use super::{Shared, voice};
use crate::access::Identity;
use crate::shared::json::json;
use crate::shared::object::Object;

/// How long a reader is held when there is nothing new. One client asks again at once, others wait for ten
/// seconds at most.
const HOLD: Duration = Duration::from_secs(1);
/// Of how many jobs is known what was read of them.
const KNOWN: usize = 10_000;

pub(super) async fn stream(
    State(face): State<Shared>,
    Path((endpoint, id)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, Trouble> {
    let endpoint = face.asked(&endpoint, Asked::Stream)?;
    let job = face.find(&endpoint, &caller, &id).await?;
    let until = tokio::time::Instant::now() + HOLD;
    loop {
        let read = face.given.of(&caller.account, job.id());
        let came = tokio::time::timeout_at(until, job.progress(Seen { outputs: read, logs: 0 })).await;
        let now = job.snapshot();
        let parts = match came {
            // What was returned is no part of a stream.
            Ok(progress) if now.metrics.contains_key(note::STREAMED) => progress.outputs,
            Ok(_) | Err(_) => Vec::new(),
        };
        if face.given.give(&caller.account, job.id(), read, parts.len()) {
            let mut body = Object::with_room_for(parts.iter().map(Bytes::len).sum());
            return Ok(json(StatusCode::OK, body.field("status", voice::status(&now)).raw("stream", Some(&list(&parts))).finish()));
        }
    }
}

fn list(parts: &[Bytes]) -> Bytes {
    let mut list = BytesMut::with_capacity(parts.iter().map(|part| part.len() + 12).sum::<usize>() + 2);
    list.put_u8(b'[');
    for (place, part) in parts.iter().enumerate() {
        list.put_slice(if place > 0 { b",{\"output\":" } else { b"{\"output\":" });
        list.put_slice(part);
        list.put_u8(b'}');
    }
    list.put_u8(b']');
    list.freeze()
}

/// How much of each job was read. It is forgotten with the server, and readers get everything again.
#[derive(Default)]
pub(super) struct Given(Mutex<Read>);

#[derive(Default)]
struct Read {
    parts: HashMap<(Account, JobId), usize>,
    order: VecDeque<(Account, JobId)>,
}

impl Given {
    fn with<R>(&self, f: impl FnOnce(&mut Read) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn of(&self, account: &Account, id: &JobId) -> usize {
        self.with(|read| read.parts.get(&(account.clone(), id.clone())).copied().unwrap_or_default())
    }

    /// So many parts more were read, unless somebody else has read meanwhile.
    fn give(&self, account: &Account, id: &JobId, before: usize, more: usize) -> bool {
        let key = (account.clone(), id.clone());
        self.with(|read| {
            if read.parts.get(&key).copied().unwrap_or_default() != before {
                return false;
            }
            if more > 0 && read.parts.insert(key.clone(), before + more).is_none() {
                read.order.push_back(key);
            }
            while read.order.len() > KNOWN {
                let oldest = read.order.pop_front();
                oldest.map(|key| read.parts.remove(&key));
            }
            true
        })
    }

    /// Nothing of it was read: it runs again.
    pub(super) fn forget(&self, account: &Account, id: &JobId) {
        let key = (account.clone(), id.clone());
        self.with(|read| {
            if read.parts.remove(&key).is_some() {
                read.order.retain(|other| *other != key);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_given_once() {
        let (given, account, id) = (Given::default(), Account::ANONYMOUS, JobId::parse("a").unwrap());
        assert!(given.give(&account, &id, 0, 2));
        assert!(!given.give(&account, &id, 0, 2), "another reader was faster");
        assert_eq!(given.of(&account, &id), 2);
        given.forget(&account, &id);
        assert_eq!(given.of(&account, &id), 0);
    }

    #[test]
    fn only_so_many_jobs_are_remembered() {
        let (given, account) = (Given::default(), Account::ANONYMOUS);
        for n in 0..KNOWN + 5 {
            assert!(given.give(&account, &JobId::parse(&n.to_string()).unwrap(), 0, 1));
        }
        assert_eq!(given.with(|read| (read.parts.len(), read.order.len())), (KNOWN, KNOWN));
    }

    #[test]
    fn parts_are_wrapped() {
        assert_eq!(list(&[]), "[]");
        assert_eq!(list(&[Bytes::from("1"), Bytes::from("[2]")]), r#"[{"output":1},{"output":[2]}]"#);
    }
}
