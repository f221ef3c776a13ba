//! One job, from the moment it is in hand until the platform has its result.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::addresses::Delivered;
use crate::delivery::{Delivery, End, Mouth, Word};
use crate::hand::Hand;
use crate::labour::{Came, Labour};
use crate::platform::Platform;
use crate::wire::Job;

/// What all jobs are run with.
pub(crate) struct Runner {
    pub(crate) labour: Labour,
    pub(crate) platform: Arc<Platform>,
    pub(crate) hand: Hand,
}

impl Runner {
    /// Runs a job that is in hand.
    pub(crate) async fn run(self: Arc<Self>, job: Job, stop: CancellationToken) {
        let (mouth, delivery) = Delivery::new(Arc::clone(&self.platform), &job.id, stop.clone());
        tokio::join!(delivery.run(), self.speak(&job, &stop, mouth));
        if stop.is_cancelled() {
            tracing::info!(job = job.id, "Stopped.");
        }
        self.done(&job.id);
    }

    /// Brings a result that is known already.
    pub(crate) async fn bring(
        self: Arc<Self>,
        id: String,
        stop: CancellationToken,
        delivered: Delivered,
        body: Bytes,
    ) {
        self.hand.over(&id);
        let (mouth, delivery) = Delivery::new(Arc::clone(&self.platform), &id, stop);
        tokio::join!(
            delivery.run(),
            mouth.say(Word::End(End {
                delivered,
                body,
                at: Instant::now()
            }))
        );
        self.done(&id);
    }

    async fn speak(&self, job: &Job, stop: &CancellationToken, mouth: Mouth) {
        if let Came::Out(end) = self.labour.work(job, stop, &mouth).await {
            self.labour.journal.over(&job.id, end.delivered, &end.body);
            self.hand.over(&job.id);
            mouth.say(Word::End(end)).await;
        }
    }

    fn done(&self, id: &str) {
        self.labour.journal.gone(id);
        self.hand.remove(id);
    }
}
