//! Taking up what a server before this one has left: jobs that are not over, and messages that nobody
//! has taken.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tidegate_core::Status;
use tidegate_core::port::Patience;
use tidegate_core::record::{Ending, Letter, Order, Record};
use tidegate_core::store::{Finish, Store, StoreError};

use crate::config::OnLost;
use crate::input::Checked;
use crate::job::{Job, NewJob};
use crate::jobs::Jobs;
use crate::keeping::letter;
use crate::submission::{Delivery, Replay};
use crate::taking::Launch;
use crate::upkeep;
use crate::webhook::{Webhook, WebhookEvent, Wording, deliver};

/// How many are read at once.
const BATCH: usize = 500;

/// What was taken up.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    /// Jobs that wait for the model again.
    pub queued: usize,
    /// Jobs that have failed because the server died while the model worked on them.
    pub failed: usize,
    /// Messages that are sent again.
    pub letters: usize,
}

impl Jobs {
    /// Takes up what is left in the store. To be called once, before callers come.
    pub async fn resume(&self) -> Result<Resumed, StoreError> {
        let Some(store) = self.inner.tools.store.clone() else { return Ok(Resumed::default()) };
        self.inner.tasks.spawn(upkeep::forget(Arc::clone(&store), self.inner.keep_for, self.inner.closing.clone()));
        let mut resumed = Resumed::default();
        for letter in store.letters(usize::MAX).await? {
            resumed.letters += 1;
            self.send_again(letter);
        }
        let mut after = 0;
        loop {
            let batch = store.open(after, BATCH).await?;
            let Some((last, _)) = batch.last() else { return Ok(resumed) };
            after = *last;
            for (_, record) in batch {
                if self.may_run_again(&record) {
                    resumed.queued += 1;
                    self.run_again(&store, record).await?;
                } else {
                    resumed.failed += 1;
                    self.fail_lost(&store, record).await?;
                }
            }
        }
    }

    /// One that the model had not begun with is only late.
    fn may_run_again(&self, record: &Record) -> bool {
        match self.inner.on_lost {
            _ if record.attempt == 0 => true,
            OnLost::Fail => false,
            OnLost::Retry { attempts } => record.attempt < attempts,
        }
    }

    async fn run_again(&self, store: &Arc<dyn Store>, record: Record) -> Result<(), StoreError> {
        let Record { order, attempt, .. } = record;
        let turn = match self.inner.tools.executor.admit(&order.account, Patience::Endless) {
            Ok(turn) => turn,
            Err(refusal) => {
                tracing::warn!(job = %order.id, %refusal, "a job stays in the store until the model works");
                return Ok(());
            }
        };
        let webhook = self.webhook_of(&order);
        let deadline = order.deadline.map(|at| tokio::time::Instant::now() + until(at));
        let checked = Checked { files: addresses(&order), secrets: order.secrets.clone(), ..Checked::untouched(&order.input) };
        let new = NewJob {
            account: order.account,
            id: order.id,
            kind: order.kind,
            face: order.face,
            target: Arc::new(order.target),
            input: order.input,
            secrets: order.secrets,
            deadline: order.deadline,
            for_readers: false,
            history: Some(self.inner.stream_history),
            max_output: self.inner.max_output,
        };
        let job = Arc::new(Job::again(new, order.created_at));
        if self.inner.registry.insert(Arc::clone(&job), Replay::Answer).is_ok() {
            let launch = Launch { job, checked, context: order.context, webhook, delivery: Delivery::Later, deadline, turn };
            drop(self.launch(launch, Some((Arc::clone(store), attempt))));
        }
        Ok(())
    }

    /// Ends a job that the model worked on when the server died.
    async fn fail_lost(&self, store: &Arc<dyn Store>, record: Record) -> Result<(), StoreError> {
        let webhook = self.webhook_of(&record.order).filter(|webhook| webhook.filter.wants(WebhookEvent::Completed));
        let completed_at = Timestamp::now().max(record.started_at.unwrap_or(record.order.created_at));
        let error = "the server was ended while the model worked on it, and --on-lost is `fail`".to_owned();
        let ending = Ending { completed_at, error: Some(error), ..Ending::of_nothing() };
        let (account, id, attempt) = (record.order.account.clone(), record.order.id.clone(), record.attempt);
        let over = Record { status: Status::Failed, ending: Some(ending.clone()), ..record };
        let letter = webhook.map(|webhook| of_restored(&webhook, over));
        let finish = Finish { account, id, attempt, status: Status::Failed, ending, letter: letter.clone() };
        if store.finish(finish).await?
            && let Some(letter) = letter
        {
            self.send_again(letter);
        }
        Ok(())
    }

    fn send_again(&self, letter: Letter) {
        // Its words are written already.
        let Some(webhook) = Webhook::of_hook(&letter.hook, Wording::new(|_| Bytes::new())) else {
            tracing::error!(message = letter.id, "a webhook that was written down cannot be read");
            return;
        };
        let senders = Arc::clone(&self.inner.senders);
        self.inner.senders.tasks.spawn(async move {
            tokio::time::sleep(until(letter.next_at)).await;
            deliver(&senders, Arc::new(webhook), letter).await;
        });
    }

    fn webhook_of(&self, order: &Order) -> Option<Webhook> {
        let hook = order.hook.as_ref()?;
        Webhook::of_hook(hook, (self.inner.wording)(order.face, hook.origin.as_deref()))
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
    let address = |pointer: &String| Some((pointer.clone(), input.pointer(pointer)?.as_str()?.to_owned()));
    order.files.iter().filter_map(address).collect()
}
