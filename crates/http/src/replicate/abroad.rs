//! Jobs of this face in the words of another: both show the same jobs, and files need their addresses there too.

use axum::http::HeaderMap;
use axum::http::header::HOST;
use bytes::Bytes;
use tidegate_service::{Job, Snapshot};
use url::Url;

use super::links::Giver;
use super::origin::{self, Origin};
use super::{Config, Voice};

/// Tells what other faces show of jobs that came by this one.
#[derive(Clone)]
pub struct Abroad {
    voice: Voice,
    public_url: Option<Url>,
    own_url: Url,
}

/// Tells one caller.
pub(crate) struct Teller {
    voice: Voice,
    origin: Origin,
}

impl Config {
    /// For the other faces.
    pub fn abroad(&self) -> Abroad {
        Abroad {
            voice: self.voice.clone(),
            public_url: self.public_url.clone(),
            own_url: self.own_url.clone(),
        }
    }
}

impl Abroad {
    /// For who sent these headers.
    pub(crate) fn teller(&self, headers: &HeaderMap) -> Teller {
        let named = headers.get(HOST).and_then(|host| host.to_str().ok());
        Teller {
            voice: self.voice.clone(),
            origin: origin::seen_from(self.public_url.as_ref(), &self.own_url, named),
        }
    }
}

impl Teller {
    /// A job as it is now, with addresses of its files.
    pub(crate) fn job(&self, job: &Job) -> Snapshot {
        let job = job.snapshot();
        let giver = Giver {
            account: &job.account,
            id: &job.id,
            completed_at: job.completed_at,
        };
        let output = job
            .output
            .as_ref()
            .map(|output| self.voice.output(&giver, output, &self.origin));
        Snapshot { output, ..job }
    }

    /// One value of a job.
    pub(crate) fn value(&self, job: &Job, json: &Bytes) -> Bytes {
        let giver = Giver {
            account: job.account(),
            id: job.id(),
            completed_at: None,
        };
        self.voice.output(&giver, json, &self.origin)
    }
}
