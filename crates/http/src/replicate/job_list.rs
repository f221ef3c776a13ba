//! Pages of predictions and trainings, newest first, with whole addresses of their neighbours.

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
use super::predictions::noun;
use super::reply::{self, ApiError};
use super::wire;
use crate::access::Identity;

/// How many are on a page.
const PAGE: usize = 100;

impl AppState {
    pub(super) async fn list(
        &self,
        kind: JobKind,
        query: &str,
        caller: Identity,
        reader: ClientProfile,
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
        let written =
            |job: &Arc<Job>| serde_json::from_slice(&self.written(&job.snapshot(), &reader));
        let results: Result<Vec<Box<RawValue>>, _> = page.items.iter().map(written).collect();
        let link = |cursor: Cursor| params.link(kind, &reader.origin, &cursor);
        let results = results.expect("what we write is JSON");
        Ok(reply::ok(&wire::Page {
            next: page.next.map(link),
            previous: page.previous.map(link),
            results,
        }))
    }
}

/// What a list is params for.
#[derive(Debug, Default, PartialEq)]
struct ListParams {
    cursor: Option<String>,
    created_after: Option<Timestamp>,
    created_before: Option<Timestamp>,
    source: JobSource,
}

/// How a job was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum JobSource {
    /// As all are here.
    #[default]
    Api,
    /// On pages of Replicate's.
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
                        Some(moment(&value).ok_or(ApiError::BadMoment("created_after"))?)
                }
                "created_before" => {
                    params.created_before =
                        Some(moment(&value).ok_or(ApiError::BadMoment("created_before"))?)
                }
                "source" => params.source = source(&value).ok_or(ApiError::BadSource)?,
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

    /// The address of another page of this list.
    fn link(&self, kind: JobKind, origin: &Origin, cursor: &Cursor) -> String {
        let mut url = origin.url(&["v1", &format!("{}s", noun(kind))]);
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

/// A moment as ISO 8601 has it; without an offset it is UTC.
fn moment(text: &str) -> Option<Timestamp> {
    // A plus that was not escaped has become a space.
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
    fn moments_may_lack_an_offset() {
        let want = "2026-01-31T12:00:00Z".parse().ok();
        for text in [
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00",
            "2026-01-31T13:00:00 01:00",
        ] {
            assert_eq!(moment(text), want, "{text}");
        }
        assert_eq!(moment("2026-01-31"), "2026-01-31T00:00:00Z".parse().ok());
        assert_eq!(moment("yesterday"), None);
    }
}
