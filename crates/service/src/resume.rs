//! Taking up what a server before this one has left: jobs that are not over, and messages that nobody
//! has taken.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tidegate_core::Status;
use tidegate_core::planted::{Planted, planted};
use tidegate_core::port::Patience;
use tidegate_core::record::{Ending, Face, Hook, Letter, Order, Record, Target};
use tidegate_core::store::{Finish, Store, StoreError};

use crate::config::OnLost;
use crate::input::Checked;
use crate::job::{Job, NewJob, now};
use crate::jobs::{Inner, Jobs};
use crate::keeping::letter;
use crate::parking::Left;
use crate::snapshot::Terminal;
use crate::submission::{Delivery, Replay};
use crate::taking::Launch;
use crate::upkeep::{Upkeep, What};
use crate::webhook::{Pace, Webhook, WebhookEvent, Wording, deliver, message_id};

/// How many are read at once.
const BATCH: usize = 500;

/// What was taken up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Jobs that wait for the model again.
    pub queued: usize,
    /// Jobs that are over because the server died with them: the model worked on them, or they were to stop.
    pub failed: usize,
    /// Messages that are sent again.
    pub letters: usize,
}

impl Jobs {
    /// Takes up what is left in the store, each job by the desk of its model. To be called once, before
    /// callers come.
    pub async fn resume(
        &self,
        desk_of: &(dyn Fn(&Target) -> Option<Self> + Send + Sync),
    ) -> Result<Resumed, StoreError> {
        let Some(store) = self.inner.tools.store.clone() else {
            return Ok(Resumed::default());
        };
        self.keep_tidy(&store);
        let mut resumed = Resumed {
            letters: self.resume_letters(&*store, desk_of).await?,
            ..Resumed::default()
        };
        let mut after = 0;
        loop {
            let mut batch = store.open(after, BATCH).await?;
            let Some((last, _)) = batch.last() else {
                return Ok(resumed);
            };
            after = *last;
            if planted(Planted::MixedQueue) {
                batch.reverse();
            }
            for (_, record) in batch {
                let desk = desk_of(&record.order.target);
                if record.cancel_asked {
                    resumed.failed += 1;
                    desk.as_ref()
                        .unwrap_or(self)
                        .end_lost(&store, record, Terminal::Canceled)
                        .await?;
                    continue;
                }
                let lost = match &desk {
                    Some(desk) if self.may_run_again(&record) => {
                        resumed.queued += 1;
                        desk.run_again(&store, record).await;
                        continue;
                    }
                    Some(_) => "the server was ended while the model worked on it, and will not try it again (--on-lost)".to_owned(),
                    None => format!("the server was ended, and the model `{}` is not served any more", record.order.target.model),
                };
                resumed.failed += 1;
                desk.as_ref()
                    .unwrap_or(self)
                    .end_lost(&store, record, Terminal::Failed(lost))
                    .await?;
            }
        }
    }

    /// Sends what nobody has taken; says how many messages that are.
    async fn resume_letters(
        &self,
        store: &dyn Store,
        desk_of: &(dyn Fn(&Target) -> Option<Self> + Send + Sync),
    ) -> Result<usize, StoreError> {
        let (mut count, mut after) = (0, 0);
        loop {
            let batch = store.letters(after, BATCH).await?;
            let Some((last, _)) = batch.last() else {
                return Ok(count);
            };
            after = *last;
            for (_, letter) in batch {
                if planted(Planted::LostLetter) {
                    continue;
                }
                let letter = if planted(Planted::AnotherLetter) {
                    Letter {
                        id: message_id(),
                        ..letter
                    }
                } else {
                    letter
                };
                count += 1;
                let target = Target {
                    model: letter.model.clone(),
                    version: String::new(),
                    deployment: None,
                };
                // It is counted where the job was.
                desk_of(&target).as_ref().unwrap_or(self).send_again(letter);
            }
        }
    }

    /// Removes what is too old, from now on.
    fn keep_tidy(&self, store: &Arc<dyn Store>) {
        let Inner {
            tasks,
            closing,
            keep_for,
            keep_data_for,
            ..
        } = &*self.inner;
        let whole = Upkeep {
            store: Arc::clone(store),
            what: What::Jobs,
            after: *keep_for,
        };
        let data = keep_data_for
            .filter(|data| data < keep_for)
            .map(|after| Upkeep {
                what: What::Data,
                after,
                ..whole.clone()
            });
        for upkeep in data.into_iter().chain([whole]) {
            tasks.spawn(upkeep.run(closing.clone()));
        }
    }

    /// One that the model had not begun with is only late.
    pub(crate) fn may_run_again(&self, record: &Record) -> bool {
        match self.inner.on_lost {
            _ if record.attempt == 0 => true,
            OnLost::Fail => false,
            OnLost::Retry { attempts } => record.attempt < attempts,
        }
    }

    /// Has a job that was written down wait for the model again.
    pub(crate) async fn run_again(&self, store: &Arc<dyn Store>, record: Record) {
        let Record {
            order,
            attempt,
            started_at,
            ..
        } = record;
        let Some(launch) = self.again(order, started_at) else {
            return;
        };
        let kept = Some((Arc::clone(store), attempt));
        let job = &launch.job;
        // Callers of Cog's API wait at the model itself: whoever was before them stays before them.
        let at_model = (job.face() == Face::Cog).then(|| {
            self.inner
                .tools
                .executor
                .admit(job.account(), Patience::Endless)
        });
        match at_model {
            Some(Ok(turn)) => {
                self.inner
                    .tasks
                    .spawn(self.tracker(launch, kept, None).run(turn));
            }
            Some(Err(_)) | None => {
                let room = self
                    .inner
                    .parking
                    .memory
                    .for_written(launch.checked.weight());
                self.wait_in_line(launch, room, kept).await;
            }
        }
    }

    /// A job that was written down, ready to wait; nothing when it is known already.
    fn again(&self, order: Order, began_at: Option<Timestamp>) -> Option<Launch> {
        let deadline = order
            .deadline
            .map(|at| tokio::time::Instant::now() + until(at));
        let new = NewJob {
            account: order.account.clone(),
            id: order.id.clone(),
            kind: order.kind,
            face: order.face,
            target: Arc::new(order.target.clone()),
            input: order.input.clone(),
            secrets: order.secrets.clone(),
            created_at: order.created_at,
            deadline: order.deadline,
            hook: order.hook.clone().map(Arc::new),
            for_readers: false,
            history: Some(self.inner.stream_history),
            max_output: self.inner.max_output,
        };
        let job = Arc::new(Job::new(new));
        self.inner
            .registry
            .insert(Arc::clone(&job), Replay::Answer)
            .ok()?;
        Some(Launch {
            left: Some(Left { began_at }),
            ..self.launch_again(order, job, deadline)
        })
    }

    /// What a job that was written down needs to run.
    pub(crate) fn launch_again(
        &self,
        order: Order,
        job: Arc<Job>,
        deadline: Option<tokio::time::Instant>,
    ) -> Launch {
        let webhook = self.webhook_of(&order);
        let checked = Checked {
            files: addresses(&order),
            secrets: order.secrets,
            ..Checked::untouched(&order.input)
        };
        let (context, destination) = (order.context, order.destination);
        Launch {
            job,
            checked,
            context,
            destination,
            webhook,
            delivery: Delivery::Later,
            deadline,
            left: None,
        }
    }

    /// Ends a job that cannot go on.
    pub(crate) async fn end_lost(
        &self,
        store: &Arc<dyn Store>,
        record: Record,
        terminal: Terminal,
    ) -> Result<(), StoreError> {
        let webhook = self
            .webhook_of(&record.order)
            .filter(|webhook| webhook.filter.wants(WebhookEvent::Completed));
        let completed_at = now().max(record.started_at.unwrap_or(record.order.created_at));
        let (status, error) = match terminal {
            Terminal::Succeeded => (Status::Succeeded, None),
            Terminal::Failed(error) => (Status::Failed, Some(error)),
            Terminal::Canceled => (Status::Canceled, None),
            Terminal::Aborted => (Status::Aborted, None),
        };
        let ending = Ending {
            completed_at,
            error,
            ..Ending::of_nothing()
        };
        let (account, id, attempt) = (
            record.order.account.clone(),
            record.order.id.clone(),
            record.attempt,
        );
        self.inner
            .meter
            .finished(record.order.face, record.order.kind, status, None);
        let over = Record {
            status,
            ending: Some(ending.clone()),
            ..record
        };
        let letter = webhook.map(|webhook| of_restored(&webhook, over));
        let finish = Finish {
            account,
            id,
            attempt,
            began_at: None,
            status,
            ending,
            letter: letter.clone(),
        };
        if store.finish(finish).await?
            && let Some(letter) = letter
        {
            self.send_again(letter);
        }
        Ok(())
    }

    pub(crate) fn send_again(&self, letter: Letter) {
        // Its words are written already, and nothing comes before it.
        let Some(webhook) =
            Webhook::of_hook(&letter.hook, Pace::Newest, Wording::new(|_| Bytes::new()))
        else {
            tracing::error!(
                message = letter.id,
                "a webhook that was written down cannot be read"
            );
            return;
        };
        let senders = Arc::clone(&self.inner.senders);
        self.inner.senders.tasks.spawn(async move {
            tokio::time::sleep(until(letter.next_at)).await;
            deliver(&senders, Arc::new(webhook), letter).await;
        });
    }

    fn webhook_of(&self, order: &Order) -> Option<Arc<Webhook>> {
        self.webhook_for(order.face, order.hook.as_ref()?)
    }

    /// How somebody is told about a job that was written down.
    pub(crate) fn webhook_for(&self, face: Face, hook: &Hook) -> Option<Arc<Webhook>> {
        Webhook::of_hook(hook, Pace::of(face), (self.inner.wording)(face, hook)).map(Arc::new)
    }
}

fn of_restored(webhook: &Webhook, over: Record) -> Letter {
    let job = Job::restored(over);
    letter(webhook, &job, &job.snapshot())
}

/// How long it is until then; no time when it is past.
fn until(at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()
}

/// The addresses of files in an input, by JSON pointer.
fn addresses(order: &Order) -> Vec<(String, String)> {
    if order.files.is_empty() {
        return Vec::new();
    }
    let input: Value = serde_json::from_slice(&order.input).unwrap_or_default();
    let address = |pointer: &String| {
        Some((
            pointer.clone(),
            input.pointer(pointer)?.as_str()?.to_owned(),
        ))
    };
    order.files.iter().filter_map(address).collect()
}
