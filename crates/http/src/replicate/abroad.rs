//! Jobs of this face in the words of another: both show the same jobs, and files need their addresses there too.

use axum::http::HeaderMap;
use axum::http::header::HOST;
use tidegate_service::Snapshot;
use url::Url;

use super::links::Giver;
use super::{Config, Voice, origin};

/// Tells what other faces show of jobs that came by this one.
#[derive(Clone)]
pub struct Abroad {
    voice: Voice,
    public_url: Option<Url>,
    own_url: Url,
}

impl Config {
    /// For the other faces.
    pub fn abroad(&self) -> Abroad {
        Abroad { voice: self.voice.clone(), public_url: self.public_url.clone(), own_url: self.own_url.clone() }
    }
}

impl Abroad {
    /// A job with addresses of its files, for who sent these headers.
    pub(crate) fn told(&self, job: Snapshot, headers: &HeaderMap) -> Snapshot {
        let Some(output) = &job.output else { return job };
        let named = headers.get(HOST).and_then(|host| host.to_str().ok());
        let origin = origin::seen_from(self.public_url.as_ref(), &self.own_url, named);
        let giver = Giver { account: &job.account, id: &job.id, completed_at: job.completed_at };
        let output = Some(self.voice.output(&giver, output, &origin));
        Snapshot { output, ..job }
    }
}
