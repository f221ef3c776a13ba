//! What one job has to say, brought to the platform in order: progress, parts, and at last the result.
//!
//! One task per job reads a short queue. A full queue stops the model at its next word, so nothing piles up.
//! Parts and results are brought until they are taken. Progress is not: it is out of date a moment later.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::addresses::Delivered;
use crate::pace::Pace;
use crate::platform::{Brought, Platform};

/// Words of one job that may wait.
const QUEUE: usize = 256;
/// How long a result waits for progress that was reported before it.
const PROGRESS_BEFORE_RESULT: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Something that a job says.
#[derive(Debug)]
pub(crate) enum Word {
    /// How far it is.
    Progress(Bytes),
    /// A part of its output.
    Part(Bytes),
    /// The end. Nothing comes after it.
    End(End),
}

/// How a job ended, as the platform is told.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) delivered: Delivered,
    pub(crate) body: Bytes,
    pub(crate) at: Instant,
}

/// How a job says something.
pub(crate) struct Mouth(mpsc::Sender<Word>);

/// The other side of it.
pub(crate) struct Delivery {
    pub(crate) platform: Arc<Platform>,
    pub(crate) job: String,
    pub(crate) stop: CancellationToken,
    words: mpsc::Receiver<Word>,
}

impl Mouth {
    /// One that nobody listens to.
    pub(crate) fn unheard() -> Self {
        Self(mpsc::channel(1).0)
    }

    /// Says something; waits while the platform is slow.
    pub(crate) async fn say(&self, word: Word) {
        // The other side leaves early only when the job was stopped, and then nobody listens.
        self.0.send(word).await.ok();
    }
}

impl Delivery {
    pub(crate) fn new(
        platform: Arc<Platform>,
        job: &str,
        stop: CancellationToken,
    ) -> (Mouth, Self) {
        let (tx, words) = mpsc::channel(QUEUE);
        (
            Mouth(tx),
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
                if let Word::End(end) = word {
                    Some(end.at)
                } else {
                    None
                }
            });
            let mut patience = true;
            for word in batch.drain(..) {
                match word {
                    Word::Progress(body) => {
                        let late = ended_at.is_some_and(|at| at.elapsed() > PROGRESS_BEFORE_RESULT);
                        if patience && !late {
                            patience = self.tell(body).await;
                        }
                    }
                    Word::Part(body) => self.bring(Piece::Part, body).await,
                    Word::End(end) => return self.bring(Piece::End(end.delivered), end.body).await,
                }
            }
        }
    }

    /// Tells how far the job is, once; whether it is worth going on.
    async fn tell(&self, body: Bytes) -> bool {
        match self.platform.progress(&self.job, body).await {
            Brought::Accepted => true,
            Brought::Refused(reason) | Brought::NotNow(reason, _) => {
                tracing::warn!(job = self.job, reason, "progress was not told");
                false
            }
        }
    }

    /// Brings something until it is taken, or refused for good.
    async fn bring(&self, piece: Piece, body: Bytes) {
        let mut pace = Pace::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut tries = 0u32;
        loop {
            tries += 1;
            let brought = match piece {
                Piece::Part => self.platform.part(&self.job, body.clone()).await,
                Piece::End(delivered) => {
                    self.platform.end(&self.job, delivered, body.clone()).await
                }
            };
            match brought {
                Brought::Accepted if tries > 1 => {
                    return tracing::info!(
                        job = self.job,
                        tries,
                        "the platform has taken it at last"
                    );
                }
                Brought::Accepted => return,
                Brought::Refused(reason) => {
                    return tracing::error!(
                        job = self.job,
                        reason,
                        "the platform does not want what the job gave, and it is lost"
                    );
                }
                Brought::NotNow(reason, asked) => {
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
    End(Delivered),
}
