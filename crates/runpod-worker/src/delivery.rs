//! What one job has to say, brought to the platform in order: progress, parts, and at last the result.
//!
//! One task per job reads a short queue. A full queue stops the model at its next word, so nothing piles up.
//! WorkerDeps and results are brought until they are taken. Progress is not: it is out of date a moment later.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::platform_client::{PlatformClient, PostOutcome};
use crate::platform_urls::OutputDelivery;

/// Words of one job that may wait.
const QUEUE: usize = 256;
/// How long a result waits for progress that was reported before it.
const PROGRESS_BEFORE_RESULT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Something that a job says.
#[derive(Debug)]
pub(crate) enum Report {
    /// How far it is.
    Progress(Bytes),
    /// A part of its output.
    Part(Bytes),
    /// The end. Nothing comes after it.
    Final(FinalReport),
}

/// How a job ended, as the platform is told.
#[derive(Debug, Clone)]
pub(crate) struct FinalReport {
    pub(crate) delivered: OutputDelivery,
    pub(crate) body: Bytes,
    pub(crate) at: Instant,
}

/// How a job says something.
pub(crate) struct ReportSender(mpsc::Sender<Report>);

/// The other side of it.
pub(crate) struct ReportDelivery {
    pub(crate) platform: Arc<PlatformClient>,
    pub(crate) job: String,
    pub(crate) stop: CancellationToken,
    words: mpsc::Receiver<Report>,
}

impl ReportSender {
    /// One that nobody listens to.
    pub(crate) fn disconnected() -> Self {
        Self(mpsc::channel(1).0)
    }

    /// Says something; waits while the platform is slow.
    pub(crate) async fn say(&self, word: Report) {
        // The other side leaves early only when the job was stopped, and then nobody listens.
        self.0.send(word).await.ok();
    }
}

impl ReportDelivery {
    pub(crate) fn new(
        platform: Arc<PlatformClient>,
        job: &str,
        stop: CancellationToken,
    ) -> (ReportSender, Self) {
        let (tx, words) = mpsc::channel(QUEUE);
        (
            ReportSender(tx),
            Self {
                platform,
                job: job.to_owned(),
                stop,
                words,
            },
        )
    }

    /// Brings everything; over when the platform has the end or does not want it, or when the job was stopped.
    pub(crate) async fn run(mut self) {
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.bring_all()).await;
    }

    async fn bring_all(&mut self) {
        let mut batch = Vec::new();
        loop {
            if self.words.recv_many(&mut batch, QUEUE).await == 0 {
                return;
            }
            let ended_at = batch.last().and_then(|word| {
                if let Report::Final(end) = word {
                    Some(end.at)
                } else {
                    None
                }
            });
            let mut patience = true;
            for word in batch.drain(..) {
                match word {
                    Report::Progress(body) => {
                        let late = ended_at.is_some_and(|at| at.elapsed() > PROGRESS_BEFORE_RESULT);
                        if patience && !late {
                            patience = self.tell(body).await;
                        }
                    }
                    Report::Part(body) => self.bring(Piece::Part, body).await,
                    Report::Final(end) => {
                        return self.bring(Piece::Final(end.delivered), end.body).await;
                    }
                }
            }
        }
    }

    /// Tells how far the job is, once; whether it is worth going on.
    async fn tell(&self, body: Bytes) -> bool {
        match self.platform.progress(&self.job, body).await {
            PostOutcome::Accepted => true,
            PostOutcome::Rejected(reason) | PostOutcome::Retry(reason, _) => {
                tracing::warn!(job = self.job, reason, "progress was not told");
                false
            }
        }
    }

    /// Brings something until it is taken, or refused for good.
    async fn bring(&self, piece: Piece, body: Bytes) {
        let mut pace = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut tries = 0u32;
        loop {
            tries += 1;
            let brought = match piece {
                Piece::Part => self.platform.part(&self.job, body.clone()).await,
                Piece::Final(delivered) => {
                    self.platform.end(&self.job, delivered, body.clone()).await
                }
            };
            match brought {
                PostOutcome::Accepted if tries > 1 => {
                    return tracing::info!(
                        job = self.job,
                        tries,
                        "the platform has taken it at last"
                    );
                }
                PostOutcome::Accepted => return,
                PostOutcome::Rejected(reason) => {
                    return tracing::error!(
                        job = self.job,
                        reason,
                        "the platform does not want what the job gave, and it is lost"
                    );
                }
                PostOutcome::Retry(reason, asked) => {
                    let pause = pace.fail().max(asked.unwrap_or_default());
                    tracing::warn!(
                        job = self.job,
                        reason,
                        tries,
                        ?pause,
                        "the platform did not take what the job gave; it is brought again"
                    );
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Piece {
    Part,
    Final(OutputDelivery),
}
