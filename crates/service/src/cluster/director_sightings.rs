//! The directors that have sent a heartbeat to this process, for operators. In a cluster with several API
//! processes each sees those that call it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::director_api::HeartbeatCall;
use tokio::time::Instant;

/// How long a director is listed after its last heartbeat.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The directors that call this process.
#[derive(Debug, Default)]
pub struct DirectorSightings(Mutex<BTreeMap<String, Sighting>>);

/// A director, as of its last heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenDirector {
    /// Its name.
    pub name: String,
    /// The models that it serves.
    pub models: Vec<String>,
    /// How many jobs it can run at the same time.
    pub slots: u32,
    /// How many jobs it runs.
    pub running: usize,
    /// Whether it takes no more jobs.
    pub is_draining: bool,
    /// How long ago the heartbeat was.
    pub last_seen: Duration,
}

#[derive(Debug)]
struct Sighting {
    director: SeenDirector,
    at: Instant,
}

impl DirectorSightings {
    /// Records a heartbeat.
    pub(super) fn record(&self, call: &HeartbeatCall) {
        let director = SeenDirector {
            name: call.holder.name.clone(),
            models: call
                .models
                .iter()
                .map(|offer| offer.model.clone())
                .collect(),
            slots: call.models.iter().map(|offer| offer.slots).sum(),
            running: call.leases.len(),
            is_draining: call.is_draining,
            last_seen: Duration::ZERO,
        };
        let at = Instant::now();
        let mut sightings = self.lock();
        sightings.retain(|_, sighting| at.duration_since(sighting.at) < FORGET_AFTER);
        sightings.insert(director.name.clone(), Sighting { director, at });
    }

    /// The directors, by name.
    pub fn seen(&self) -> Vec<SeenDirector> {
        let now = Instant::now();
        let mut sightings = self.lock();
        sightings.retain(|_, sighting| now.duration_since(sighting.at) < FORGET_AFTER);
        sightings
            .values()
            .map(|sighting| SeenDirector {
                last_seen: now.duration_since(sighting.at),
                ..sighting.director.clone()
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Sighting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::director_api::{DirectorJobKind, ModelOffer};
    use tidegate_core::leases::Holder;

    use super::*;

    fn heartbeat(name: &str) -> HeartbeatCall {
        HeartbeatCall {
            holder: Holder {
                name: name.to_owned(),
                boot: 1,
            },
            leases: Vec::new(),
            models: vec![ModelOffer {
                model: "ann/echo".to_owned(),
                version: "0".repeat(64),
                schema_hash: None,
                slots: 2,
            }],
            job_kind: DirectorJobKind::Prediction,
            is_draining: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_director_is_listed_until_a_minute_after_its_last_heartbeat() {
        let sightings = DirectorSightings::default();
        sightings.record(&heartbeat("a"));
        tokio::time::advance(Duration::from_secs(50)).await;
        sightings.record(&heartbeat("b"));
        let seen = sightings.seen();
        let ages: Vec<_> = seen
            .iter()
            .map(|d| (&*d.name, d.last_seen.as_secs()))
            .collect();
        assert_eq!(ages, [("a", 50), ("b", 0)]);
        assert_eq!((seen[0].slots, &*seen[0].models[0]), (2, "ann/echo"));
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(sightings.seen().len(), 1);
    }
}
