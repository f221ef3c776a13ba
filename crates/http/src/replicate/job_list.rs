//! Pages of predictions and trainings, newest first, with absolute URLs of the next and previous
//! page.

use std::sync::Arc;

use axum::response::Response;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::value::RawValue;
use tidegate_core::JobKind;
use tidegate_core::store::{Cursor, JobQuery};
use tidegate_service::Job;
use url::form_urlencoded;

use super::AppState;
use super::client_profile::ClientProfile;
use super::origin::Origin;
use super::predictions::resource_name;
use super::reply::{self, ApiError};
use super::wire;
use crate::access::Identity;

/// The number of jobs on a page.
const PAGE: usize = 100;

impl AppState {
    pub(super) async fn list(
        &self,
        kind: JobKind,
        query: &str,
        caller: Identity,
        client: ClientProfile,
    ) -> Result<Response, ApiError> {
        let params = ListParams::read(query)?;
        if params.source == JobSource::Web {
            return Ok(reply::ok(&wire::Page::<()>::only(Vec::new())));
        }
        let page = self
            .models
            .lookup()
            .list(params.query(kind, caller))
            .await?;
        let render =
            |job: &Arc<Job>| serde_json::from_slice(&self.render(&job.snapshot(), &client));
        let results: Result<Vec<Box<RawValue>>, _> = page.items.iter().map(render).collect();
        let link = |cursor: Cursor| params.link(kind, &client.origin, &cursor);
        let results = results.expect("rendered jobs are JSON");
        Ok(reply::ok(&wire::Page {
            next: page.next.map(link),
            previous: page.previous.map(link),
            results,
        }))
    }
}

/// The query parameters of a list.
#[derive(Debug, Default, PartialEq)]
struct ListParams {
    cursor: Option<String>,
    created_after: Option<Timestamp>,
    created_before: Option<Timestamp>,
    source: JobSource,
}

/// How a job was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum JobSource {
    /// Over the API, like every job of this server.
    #[default]
    Api,
    /// On Replicate's website.
    Web,
}

impl ListParams {
    fn read(query: &str) -> Result<Self, ApiError> {
        let mut params = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "cursor" => params.cursor = Some(value.into_owned()),
                "created_after" => {
                    params.created_after =
                        Some(timestamp(&value).ok_or(ApiError::InvalidTimestamp("created_after"))?)
                }
                "created_before" => {
                    params.created_before = Some(
                        timestamp(&value).ok_or(ApiError::InvalidTimestamp("created_before"))?,
                    )
                }
                "source" => params.source = source(&value).ok_or(ApiError::InvalidSource)?,
                _ => {}
            }
        }
        Ok(params)
    }

    fn query(&self, kind: JobKind, caller: Identity) -> JobQuery {
        JobQuery {
            account: caller.account,
            kind,
            created_after: self.created_after,
            created_before: self.created_before,
            from: self.cursor.clone().map(Cursor),
            limit: PAGE,
        }
    }

    /// The URL of another page of this list.
    fn link(&self, kind: JobKind, origin: &Origin, cursor: &Cursor) -> String {
        let mut url = origin.url(&["v1", &format!("{}s", resource_name(kind))]);
        let mut query = url.query_pairs_mut();
        for (name, bound) in [
            ("created_after", self.created_after),
            ("created_before", self.created_before),
        ] {
            if let Some(bound) = bound {
                query.append_pair(name, &bound.to_string());
            }
        }
        query.append_pair("cursor", &cursor.0);
        drop(query);
        url.into()
    }
}

fn source(text: &str) -> Option<JobSource> {
    match text {
        "api" => Some(JobSource::Api),
        "web" => Some(JobSource::Web),
        _ => None,
    }
}

/// Parses an ISO 8601 timestamp; without an offset it is UTC.
fn timestamp(text: &str) -> Option<Timestamp> {
    // An unescaped plus sign in a query becomes a space.
    let text = text.trim().replace(' ', "+");
    text.parse().ok().or_else(|| {
        Some(
            text.parse::<DateTime>()
                .ok()?
                .to_zoned(TimeZone::UTC)
                .ok()?
                .timestamp(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_without_offset_are_utc() {
        let want = "2026-01-31T12:00:00Z".parse().ok();
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00",
            "2026-01-31T13:00:00 01:00",
        ] {
            assert_eq!(timestamp(text), want, "{text}");
        }
        assert_eq!(timestamp("2026-01-31"), "2026-01-31T00:00:00Z".parse().ok());
        assert_eq!(timestamp("yesterday"), None);
    }
}
