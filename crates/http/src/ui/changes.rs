//! `GET /ui/api/snapshot` and `GET /ui/api/changes`: the dashboard, once and as server-sent events.
//!
//! Operators share one sequence of numbers and can resume it. Another account sees its share of the queues
//! only; its stream has numbers of its own, and begins with a snapshot each time.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;
use tidegate_core::Account;
use tokio::time::Instant;
use url::form_urlencoded;

use super::job_events::{KEEP_ALIVE, write_event};
use super::publisher::{Build, MIN_AGE, SectionTexts, Update, changed, text};
use super::{UiState, is_operator};
use crate::access::{Identity, TokenCheck};
use crate::admin::ok;
use crate::shared::response::event_stream;

/// All sections.
#[derive(Serialize)]
struct SnapshotDocument<'a> {
    epoch: &'a str,
    seq: u64,
    at: String,
    sections: &'a SectionTexts,
}

/// The sections that changed.
#[derive(Serialize)]
struct ChangeDocument<'a> {
    seq: u64,
    at: &'a str,
    set: &'a SectionTexts,
}

/// `GET /ui/api/snapshot`
pub(super) async fn snapshot(State(ui): State<Arc<UiState>>, client: Identity) -> Response {
    let build = ui.latest_build().await;
    let (seq, own) = match is_operator(&client) {
        true => (build.seq, None),
        false => (1, Some(sections_of(&build, &client.account))),
    };
    ok(&SnapshotDocument {
        epoch: &ui.epoch,
        seq,
        at: build.sections.at.to_string(),
        sections: own.as_ref().unwrap_or(&build.texts),
    })
}

/// `GET /ui/api/changes?epoch=&since=`
pub(super) async fn changes(
    State(ui): State<Arc<UiState>>,
    client: Identity,
    token: TokenCheck,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    let viewer = match is_operator(&client) {
        true => Viewer::Operator {
            seen: position(&query, &ui.epoch),
        },
        false => Viewer::Account {
            account: client.account,
            seq: 0,
            seen: SectionTexts::new(),
            built: 0,
        },
    };
    let changes = ChangeStream {
        ui,
        token,
        viewer,
        sent_at: None,
        next_at: Instant::now(),
    };
    let frames = stream::unfold(changes, |mut changes| async move {
        let frames = changes.next().await?;
        Some((Ok::<_, Infallible>(frames), changes))
    });
    event_stream(Body::from_stream(frames))
}

/// The number of the last change that the client has seen, if it is one of this process.
fn position(query: &str, epoch: &str) -> Option<u64> {
    let value = |name: &str| {
        let mut pairs = form_urlencoded::parse(query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value)
    };
    let is_own = value("epoch").is_some_and(|named| named == epoch);
    value("since")?.parse().ok().filter(|_| is_own)
}

/// Writes the changes for one viewer.
struct ChangeStream {
    ui: Arc<UiState>,
    token: TokenCheck,
    viewer: Viewer,
    /// When something was sent; `None` before the first time.
    sent_at: Option<Instant>,
    /// When the viewer looks for changes again.
    next_at: Instant,
}

/// What a viewer may see, and what it has seen.
enum Viewer {
    Operator {
        seen: Option<u64>,
    },
    Account {
        account: Account,
        seq: u64,
        seen: SectionTexts,
        /// The number of the build that `seen` is from.
        built: u64,
    },
}

impl ChangeStream {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            tokio::time::sleep_until(self.next_at).await;
            self.next_at = Instant::now() + MIN_AGE;
            // While the server shuts down, a page that connects again still gets what is new.
            let is_draining = self.ui.is_draining.load(Ordering::Relaxed);
            if !self.token.is_valid() || is_draining && self.sent_at.is_some() {
                return None;
            }
            let mut out = match &mut self.viewer {
                Viewer::Operator { seen } => operator_update(&self.ui, seen).await,
                Viewer::Account {
                    account,
                    seq,
                    seen,
                    built,
                } => {
                    let build = self.ui.latest_build().await;
                    // A share that changes also changes what operators see.
                    if std::mem::replace(built, build.seq) == build.seq {
                        String::new()
                    } else {
                        account_update(&self.ui.epoch, &build, account, seq, seen)
                    }
                }
            };
            let since = *self.sent_at.get_or_insert_with(Instant::now);
            if out.is_empty() && since.elapsed() >= KEEP_ALIVE {
                out.push_str(": keep-alive\n\n");
            }
            if !out.is_empty() {
                self.sent_at = Some(Instant::now());
                return Some(out.into());
            }
        }
    }
}

async fn operator_update(ui: &Arc<UiState>, seen: &mut Option<u64>) -> String {
    let mut out = String::new();
    match ui.update_since(*seen).await {
        Update::Whole(build) => {
            *seen = Some(build.seq);
            write_snapshot(&mut out, &ui.epoch, build.seq, &build, &build.texts);
        }
        Update::Changes(changes) => {
            for change in &changes {
                *seen = Some(change.seq);
                let (at, set) = (&*change.at, &change.set);
                let seq = change.seq;
                write_event(&mut out, "change", None, &ChangeDocument { seq, at, set });
            }
        }
    }
    out
}

fn account_update(
    epoch: &str,
    build: &Build,
    account: &Account,
    seq: &mut u64,
    seen: &mut SectionTexts,
) -> String {
    let mut out = String::new();
    let now = sections_of(build, account);
    let set = changed(seen, &now);
    if set.is_empty() {
        return out;
    }
    *seq += 1;
    if *seq == 1 {
        write_snapshot(&mut out, epoch, *seq, build, &now);
    } else {
        let (seq, at) = (*seq, &*build.sections.at.to_string());
        let set = &set;
        write_event(&mut out, "change", None, &ChangeDocument { seq, at, set });
    }
    *seen = now;
    out
}

fn write_snapshot(out: &mut String, epoch: &str, seq: u64, build: &Build, sections: &SectionTexts) {
    let at = build.sections.at.to_string();
    let document = SnapshotDocument {
        epoch,
        seq,
        at,
        sections,
    };
    write_event(out, "snapshot", None, &document);
}

/// What an account that is no operator sees: the models, and its own share of the queues.
pub(super) fn sections_of(build: &Build, account: &Account) -> SectionTexts {
    let sections = &build.sections;
    let mut texts = SectionTexts::from([("models", text(&sections.models_of(account)))]);
    if sections.router.is_none() {
        texts.insert("queues", text(&sections.queues_of(Some(account))));
    }
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_this_process_are_resumed() {
        assert_eq!(position("epoch=a&since=7", "a"), Some(7));
        for other in [
            "",
            "since=7",
            "epoch=b&since=7",
            "epoch=a",
            "epoch=a&since=x",
        ] {
            assert_eq!(position(other, "a"), None, "{other}");
        }
    }
}
