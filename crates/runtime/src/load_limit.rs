//! How many models are loaded at once. One machine can offer more than fit into it: the one that nobody
//! has used for the longest time makes room for the next.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How often is looked whether somebody can leave.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// A model that is never idle makes room when another has waited for so long.
const GIVE_WAY_AFTER: Duration = Duration::from_secs(10);

/// Places for loaded models. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct LoadLimit {
    /// `None`: as many as you like.
    free: Option<Arc<Semaphore>>,
    guests: Arc<Mutex<Vec<Weak<dyn Guest>>>>,
    /// One looks for a place at a time, in the order in which they came.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A place; dropping it gives it back.
pub(crate) struct Berth {
    _permit: Option<OwnedSemaphorePermit>,
}

/// A model that can be asked to leave.
#[async_trait]
pub(crate) trait Guest: Send + Sync {
    /// When it was used last, if it is loaded and has nothing to do.
    fn idle_since(&self) -> Option<Instant>;

    /// When it was used last, if it is loaded and has had a chance to work.
    fn busy_since(&self) -> Option<Instant>;

    /// Leaves; comes back when its place is free.
    async fn make_room(&self);
}

impl LoadLimit {
    /// Places for `most` models at once, or for any number.
    pub fn new(most: Option<usize>) -> Self {
        let free = most.map(|most| Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS))));
        Self {
            free,
            guests: Arc::default(),
            turn: Arc::default(),
        }
    }

    /// Somebody who may be asked to leave from now on.
    pub(crate) fn welcome(&self, guest: Weak<dyn Guest>) {
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(|guest| guest.strong_count() > 0);
        guests.push(guest);
    }

    /// Takes a place as soon as there is one.
    pub(crate) async fn take(&self) -> Berth {
        let Some(free) = &self.free else {
            return Berth { _permit: None };
        };
        let _turn = self.turn.lock().await;
        let came = Instant::now();
        loop {
            if let Ok(permit) = Arc::clone(free).try_acquire_owned() {
                return Berth {
                    _permit: Some(permit),
                };
            }
            let patient = came.elapsed() < GIVE_WAY_AFTER;
            match self.longest_unused(|guest| {
                if patient {
                    guest.idle_since()
                } else {
                    guest.busy_since()
                }
            }) {
                Some(guest) => guest.make_room().await,
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    fn longest_unused(
        &self,
        when: impl Fn(&dyn Guest) -> Option<Instant>,
    ) -> Option<Arc<dyn Guest>> {
        let guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = guests
            .iter()
            .filter_map(Weak::upgrade)
            .filter_map(|guest| Some((when(&*guest)?, guest)));
        loaded.min_by_key(|(used, _)| *used).map(|(_, guest)| guest)
    }
}
