//! Outputs of Replicate jobs as other APIs return them. The APIs share their jobs, and the files of a
//! Replicate job need download URLs there too.

use axum::http::HeaderMap;
use axum::http::header::HOST;
use bytes::Bytes;
use tidegate_service::{Job, Snapshot};
use url::Url;

use super::file_links::OutputJob;
use super::origin::{self, Origin};
use super::{Config, PredictionRenderer};

/// Renders outputs of Replicate jobs for other APIs. One per server.
#[derive(Clone)]
pub struct CrossApiRenderer {
    renderer: PredictionRenderer,
    public_url: Option<Url>,
    own_url: Url,
}

/// A [`CrossApiRenderer`] for one request, whose `Host` header decides the origin of the URLs.
pub(crate) struct CrossApiView {
    renderer: PredictionRenderer,
    origin: Origin,
}

impl Config {
    /// The renderer for the other APIs.
    pub fn cross_api(&self) -> CrossApiRenderer {
        CrossApiRenderer {
            renderer: self.renderer.clone(),
            public_url: self.public_url.clone(),
            own_url: self.own_url.clone(),
        }
    }
}

impl CrossApiRenderer {
    /// The view for the client that sent these headers.
    pub(crate) fn for_request(&self, headers: &HeaderMap) -> CrossApiView {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        CrossApiView {
            renderer: self.renderer.clone(),
            origin: origin::resolve(self.public_url.as_ref(), &self.own_url, host),
        }
    }
}

impl CrossApiView {
    /// The current snapshot of a job, with download URLs for the files in its output.
    pub(crate) fn snapshot(&self, job: &Job) -> Snapshot {
        let snapshot = job.snapshot();
        let job = OutputJob {
            account: &snapshot.account,
            id: &snapshot.id,
            completed_at: snapshot.completed_at,
        };
        let output = snapshot
            .output
            .as_ref()
            .map(|output| self.renderer.output(&job, output, &self.origin));
        Snapshot { output, ..snapshot }
    }

    /// One value of a job's output, with download URLs for the files in it.
    pub(crate) fn value(&self, job: &Job, json: &Bytes) -> Bytes {
        let job = OutputJob {
            account: job.account(),
            id: job.id(),
            completed_at: None,
        };
        self.renderer.output(&job, json, &self.origin)
    }
}
