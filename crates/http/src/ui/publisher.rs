//! Builds the sections of the dashboard once for all viewers, and remembers what changed.
//!
//! Nothing runs in the background: a viewer that finds the last build too old builds the next one, while the
//! others wait for it. So without viewers there are no builds, and with any number of them at most two per
//! second.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::UiState;
use super::sections::Sections;

/// The shortest time between two builds.
pub(super) const MIN_AGE: Duration = Duration::from_millis(500);
/// How many changes are kept for viewers that reconnect: those of a minute, at least.
const MAX_CHANGES: usize = 128;

/// Sections by name, as JSON.
pub(super) type SectionTexts = BTreeMap<&'static str, Arc<RawValue>>;

/// What all viewers share.
#[derive(Default)]
pub(super) struct Publisher {
    published: Mutex<Published>,
    /// The build that is under way. No shutdown waits for it: it takes milliseconds.
    builds: TaskTracker,
}

#[derive(Default)]
struct Published {
    last: Option<(Arc<Build>, Instant)>,
    changes: VecDeque<Arc<SectionChange>>,
}

/// The sections at one time.
pub(super) struct Build {
    pub(super) seq: u64,
    pub(super) sections: Sections,
    /// As operators see them.
    pub(super) texts: SectionTexts,
}

/// The sections that differ from those of the previous number.
pub(super) struct SectionChange {
    pub(super) seq: u64,
    pub(super) at: String,
    pub(super) set: SectionTexts,
}

/// What a viewer has to be sent.
pub(super) enum Update {
    /// Too much has changed since, or it has seen nothing: everything.
    Whole(Arc<Build>),
    /// The changes since, possibly none.
    Changes(Vec<Arc<SectionChange>>),
}

impl UiState {
    /// The newest sections, at most [`MIN_AGE`] old.
    pub(super) async fn latest_build(self: &Arc<Self>) -> Arc<Build> {
        if let Some(build) = self.publisher.published.lock().await.fresh() {
            return build;
        }
        // A task of its own: a viewer that disconnects must not end a build that others wait for.
        let build = Arc::clone(self).build_if_old();
        match self.publisher.builds.spawn(build).await {
            Ok(build) => build,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }

    /// Builds the sections, unless another viewer has done so meanwhile.
    async fn build_if_old(self: Arc<Self>) -> Arc<Build> {
        let mut published = self.publisher.published.lock().await;
        if let Some(build) = published.fresh() {
            return build;
        }
        let cluster = self.cluster_state().await;
        let state = Arc::clone(&self);
        // Reading /proc blocks.
        let read = move || state.read_sections(cluster.as_deref());
        let sections = match tokio::task::spawn_blocking(read).await {
            Ok(sections) => sections,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        };
        published.add(sections)
    }

    /// What a viewer has to be sent that has seen everything up to `seen`.
    pub(super) async fn update_since(self: &Arc<Self>, seen: Option<u64>) -> Update {
        let build = self.latest_build().await;
        let published = self.publisher.published.lock().await;
        published.update_since(seen, build)
    }
}

impl Published {
    /// The last build, if it is not too old.
    fn fresh(&self) -> Option<Arc<Build>> {
        let (build, at) = self.last.as_ref()?;
        (at.elapsed() < MIN_AGE).then(|| Arc::clone(build))
    }

    fn add(&mut self, sections: Sections) -> Arc<Build> {
        let texts = texts_of(&sections);
        let (seq, set) = match &self.last {
            None => (1, SectionTexts::new()),
            Some((last, _)) => {
                let set = changed(&last.texts, &texts);
                (last.seq + u64::from(!set.is_empty()), set)
            }
        };
        if !set.is_empty() {
            if self.changes.len() == MAX_CHANGES {
                self.changes.pop_front();
            }
            let at = sections.at.to_string();
            self.changes
                .push_back(Arc::new(SectionChange { seq, at, set }));
        }
        let build = Arc::new(Build {
            seq,
            sections,
            texts,
        });
        self.last = Some((Arc::clone(&build), Instant::now()));
        build
    }

    fn update_since(&self, seen: Option<u64>, build: Arc<Build>) -> Update {
        let Some(seen) = seen.filter(|seen| *seen <= build.seq) else {
            return Update::Whole(build);
        };
        let missing = self.changes.iter().filter(|change| change.seq > seen);
        let missing: Vec<_> = missing.cloned().collect();
        let is_complete = match missing.first() {
            Some(first) => first.seq == seen + 1,
            None => seen == build.seq,
        };
        if is_complete {
            Update::Changes(missing)
        } else {
            Update::Whole(build)
        }
    }
}

/// The sections as operators see them.
fn texts_of(sections: &Sections) -> SectionTexts {
    let mut texts = SectionTexts::from([
        ("overview", text(&sections.overview)),
        ("history", text(&sections.history)),
        ("models", text(&sections.models)),
    ]);
    match &sections.router {
        Some(router) => drop(texts.insert("router", text(router))),
        None => {
            texts.insert("queues", text(&sections.queues_of(None)));
            texts.insert("children", text(&sections.children));
            texts.insert("endpoints", text(&sections.endpoints));
        }
    }
    if let Some(directors) = &sections.directors {
        texts.insert("directors", text(directors));
    }
    if !sections.gpus.is_empty() {
        texts.insert("gpus", text(&sections.gpus));
    }
    if let Some(replicas) = &sections.replicas {
        texts.insert("replicas", text(replicas));
    }
    texts
}

/// The sections that are new or different.
pub(super) fn changed(before: &SectionTexts, now: &SectionTexts) -> SectionTexts {
    let is_changed = |name: &str, text: &RawValue| {
        let before = before.get(name).map(|before| before.get());
        before != Some(text.get())
    };
    now.iter()
        .filter(|(name, text)| is_changed(name, text))
        .map(|(name, text)| (*name, Arc::clone(text)))
        .collect()
}

pub(super) fn text(section: &impl Serialize) -> Arc<RawValue> {
    let json = serde_json::to_string(section).expect("sections have string keys");
    let raw = RawValue::from_string(json).expect("it was serialized");
    Arc::from(raw)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::ui::history::{LoadHistory, LoadSample};

    fn sections(waiting: usize) -> Sections {
        let history = LoadHistory::default();
        let sample = LoadSample {
            waiting,
            ..LoadSample::default()
        };
        Sections {
            at: Timestamp::UNIX_EPOCH,
            overview: history.overview(&sample),
            history: history.document(),
            models: Vec::new(),
            queues: Vec::new(),
            children: Vec::new(),
            endpoints: Vec::new(),
            directors: None,
            replicas: None,
            router: None,
            gpus: Vec::new(),
        }
    }

    fn sent(published: &Published, seen: u64) -> Option<Vec<u64>> {
        let (build, _) = published.last.clone().unwrap();
        match published.update_since(Some(seen), build) {
            Update::Whole(_) => None,
            Update::Changes(changes) => Some(changes.iter().map(|change| change.seq).collect()),
        }
    }

    #[test]
    fn only_builds_that_differ_have_a_number() {
        let mut published = Published::default();
        let numbers = [0, 0, 1, 1, 0].map(|waiting| published.add(sections(waiting)).seq);
        assert_eq!(numbers, [1, 1, 2, 2, 3]);
        let names: Vec<_> = published.changes[0].set.keys().collect();
        assert_eq!(names, [&"overview"]);
    }

    #[test]
    fn a_viewer_gets_the_changes_that_it_misses() {
        let mut published = Published::default();
        for waiting in 0..4 {
            published.add(sections(waiting));
        }
        assert_eq!(sent(&published, 4), Some(vec![]));
        assert_eq!(sent(&published, 2), Some(vec![3, 4]));
        assert_eq!(sent(&published, 1), Some(vec![2, 3, 4]));
        assert_eq!(sent(&published, 0), None, "the first build is no change");
        assert_eq!(sent(&published, 5), None, "a number of another process");
        for waiting in 0..MAX_CHANGES {
            published.add(sections(waiting + 10));
        }
        assert_eq!(sent(&published, 2), None, "the changes are not kept");
    }
}
