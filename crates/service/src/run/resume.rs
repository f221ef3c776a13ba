//! Taking up what a server before this one has left: jobs that are not over, and messages that nobody
//! has taken.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use tidegate_core::Status;
use tidegate_core::planted::{Planted, planted};
use tidegate_core::port::WaitPolicy;
use tidegate_core::record::{
    Api, Completion, JobRecord, JobSpec, OutboxMessage, Target, WebhookSpec,
};
use tidegate_core::store::{JobFinish, Store, StoreError};

use crate::config::OnLost;
use crate::input::Checked;
use crate::job::{Job, NewJob, now};
use crate::job_service::{Inner, JobService};
use crate::run::recorder::message;
use crate::run::retention::{RetentionSweep, RetentionTarget};
use crate::snapshot::TerminalState;
use crate::submit::PreparedJob;
use crate::submit::{OnDuplicateId, ResponseMode};
use crate::waiting::waiting_jobs::FromPreviousRun;
use crate::webhook::{UpdatePolicy, Webhook, WebhookEvent, WebhookRenderer, deliver, message_id};

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
    pub messages: usize,
}

impl JobService {
    /// Takes up what is left in the store, each job by the desk of its model. To be called once, before
    /// callers come.
    pub async fn resume(
        &self,
        service_of: &(dyn Fn(&Target) -> Option<Self> + Send + Sync),
    ) -> Result<Resumed, StoreError> {
        let Some(store) = self.inner.deps.store.clone() else {
            return Ok(Resumed::default());
        };
        self.keep_tidy(&store);
        let mut resumed = Resumed {
            messages: self.resume_messages(&*store, service_of).await?,
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
                let service = service_of(&record.spec.target);
                if record.cancel_asked {
                    resumed.failed += 1;
                    service
                        .as_ref()
                        .unwrap_or(self)
                        .end_lost(&store, record, TerminalState::Canceled)
                        .await?;
                    continue;
                }
                let lost = match &service {
                    Some(service) if self.may_run_again(&record) => {
                        resumed.queued += 1;
                        service.run_again(&store, record).await;
                        continue;
                    }
                    Some(_) => "the server was ended while the model worked on it, and will not try it again (--on-lost)".to_owned(),
                    None => format!("the server was ended, and the model `{}` is not served any more", record.spec.target.model),
                };
                resumed.failed += 1;
                service
                    .as_ref()
                    .unwrap_or(self)
                    .end_lost(&store, record, TerminalState::Failed(lost))
                    .await?;
            }
        }
    }

    /// Sends what nobody has taken; says how many messages that are.
    async fn resume_messages(
        &self,
        store: &dyn Store,
        service_of: &(dyn Fn(&Target) -> Option<Self> + Send + Sync),
    ) -> Result<usize, StoreError> {
        let (mut count, mut after) = (0, 0);
        loop {
            let batch = store.pending_messages(after, BATCH).await?;
            let Some((last, _)) = batch.last() else {
                return Ok(count);
            };
            after = *last;
            for (_, message) in batch {
                if planted(Planted::LostLetter) {
                    continue;
                }
                let message = if planted(Planted::AnotherLetter) {
                    OutboxMessage {
                        id: message_id(),
                        ..message
                    }
                } else {
                    message
                };
                count += 1;
                let target = Target {
                    model: message.model.clone(),
                    version: String::new(),
                    deployment: None,
                };
                // It is counted where the job was.
                service_of(&target)
                    .as_ref()
                    .unwrap_or(self)
                    .send_again(message);
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
        let whole = RetentionSweep {
            store: Arc::clone(store),
            what: RetentionTarget::Jobs,
            after: *keep_for,
        };
        let data = keep_data_for
            .filter(|data| data < keep_for)
            .map(|after| RetentionSweep {
                what: RetentionTarget::Data,
                after,
                ..whole.clone()
            });
        for upkeep in data.into_iter().chain([whole]) {
            tasks.spawn(upkeep.run(closing.clone()));
        }
    }

    /// One that the model had not begun with is only late.
    pub(crate) fn may_run_again(&self, record: &JobRecord) -> bool {
        match self.inner.on_lost {
            _ if record.attempt == 0 => true,
            OnLost::Fail => false,
            OnLost::Retry { attempts } => record.attempt < attempts,
        }
    }

    /// Has a job that was written down wait for the model again.
    pub(crate) async fn run_again(&self, store: &Arc<dyn Store>, record: JobRecord) {
        let JobRecord {
            spec,
            attempt,
            started_at,
            ..
        } = record;
        let Some(prepared) = self.again(spec, started_at) else {
            return;
        };
        let kept = Some((Arc::clone(store), attempt));
        let job = &prepared.job;
        // Callers of Cog's API wait at the model itself: whoever was before them stays before them.
        let at_model = (job.api() == Api::Cog).then(|| {
            self.inner
                .deps
                .executor
                .admit(job.account(), WaitPolicy::Unbounded)
        });
        match at_model {
            Some(Ok(admitted)) => {
                self.inner
                    .tasks
                    .spawn(self.tracker(prepared, kept, None).run(admitted));
            }
            Some(Err(_)) | None => {
                let place = self
                    .inner
                    .waiting_jobs
                    .memory
                    .reserve_recorded(prepared.checked.weight());
                self.enqueue(prepared, place, kept).await;
            }
        }
    }

    /// A job that was written down, ready to wait; nothing when it is known already.
    fn again(&self, spec: JobSpec, began_at: Option<Timestamp>) -> Option<PreparedJob> {
        let deadline = spec
            .deadline
            .map(|at| tokio::time::Instant::now() + until(at));
        let new = NewJob {
            account: spec.account.clone(),
            id: spec.id.clone(),
            kind: spec.kind,
            api: spec.api,
            target: Arc::new(spec.target.clone()),
            input: spec.input.clone(),
            secrets: spec.secrets.clone(),
            created_at: spec.created_at,
            deadline: spec.deadline,
            hook: spec.hook.clone().map(Arc::new),
            for_readers: false,
            history: Some(self.inner.stream_history),
            max_output: self.inner.max_output,
        };
        let job = Arc::new(Job::new(new));
        self.inner
            .registry
            .insert(Arc::clone(&job), OnDuplicateId::Answer)
            .ok()?;
        Some(PreparedJob {
            previous_run: Some(FromPreviousRun { began_at }),
            ..self.prepare_again(spec, job, deadline)
        })
    }

    /// What a job that was written down needs to run.
    pub(crate) fn prepare_again(
        &self,
        spec: JobSpec,
        job: Arc<Job>,
        deadline: Option<tokio::time::Instant>,
    ) -> PreparedJob {
        let webhook = self.webhook_of(&spec);
        let checked = Checked {
            files: addresses(&spec),
            secrets: spec.secrets,
            ..Checked::untouched(&spec.input)
        };
        let (context, destination) = (spec.context, spec.destination);
        PreparedJob {
            job,
            checked,
            context,
            destination,
            webhook,
            delivery: ResponseMode::Async,
            deadline,
            previous_run: None,
        }
    }

    /// Ends a job that cannot go on.
    pub(crate) async fn end_lost(
        &self,
        store: &Arc<dyn Store>,
        record: JobRecord,
        terminal: TerminalState,
    ) -> Result<(), StoreError> {
        let webhook = self
            .webhook_of(&record.spec)
            .filter(|webhook| webhook.filter.wants(WebhookEvent::Completed));
        let completed_at = now().max(record.started_at.unwrap_or(record.spec.created_at));
        let (status, error) = match terminal {
            TerminalState::Succeeded => (Status::Succeeded, None),
            TerminalState::Failed(error) => (Status::Failed, Some(error)),
            TerminalState::Canceled => (Status::Canceled, None),
            TerminalState::Aborted => (Status::Aborted, None),
        };
        let completion = Completion {
            completed_at,
            error,
            ..Completion::empty()
        };
        let (account, id, attempt) = (
            record.spec.account.clone(),
            record.spec.id.clone(),
            record.attempt,
        );
        self.inner
            .metrics
            .finished(record.spec.api, record.spec.kind, status, None);
        let over = JobRecord {
            status,
            completion: Some(completion.clone()),
            ..record
        };
        let message = webhook.map(|webhook| of_restored(&webhook, over));
        let finish = JobFinish {
            account,
            id,
            attempt,
            began_at: None,
            status,
            completion,
            letter: message.clone(),
        };
        if store.finish(finish).await?
            && let Some(message) = message
        {
            self.send_again(message);
        }
        Ok(())
    }

    pub(crate) fn send_again(&self, message: OutboxMessage) {
        // Its words are written already, and nothing comes before it.
        let Some(webhook) = Webhook::of_hook(
            &message.hook,
            UpdatePolicy::Newest,
            WebhookRenderer::new(|_| Bytes::new()),
        ) else {
            tracing::error!(
                message = message.id,
                "a webhook that was written down cannot be read"
            );
            return;
        };
        let senders = Arc::clone(&self.inner.senders);
        self.inner.senders.tasks.spawn(async move {
            tokio::time::sleep(until(message.next_at)).await;
            deliver(&senders, Arc::new(webhook), message).await;
        });
    }

    fn webhook_of(&self, spec: &JobSpec) -> Option<Arc<Webhook>> {
        self.webhook_for(spec.api, spec.hook.as_ref()?)
    }

    /// How somebody is told about a job that was written down.
    pub(crate) fn webhook_for(&self, api: Api, hook: &WebhookSpec) -> Option<Arc<Webhook>> {
        Webhook::of_hook(
            hook,
            UpdatePolicy::of(api),
            (self.inner.renderer)(api, hook),
        )
        .map(Arc::new)
    }
}

fn of_restored(webhook: &Webhook, over: JobRecord) -> OutboxMessage {
    let job = Job::restored(over);
    message(webhook, &job, &job.snapshot())
}

/// How long it is until then; no time when it is past.
fn until(at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()
}

/// The addresses of files in an input, by JSON pointer.
fn addresses(spec: &JobSpec) -> Vec<(String, String)> {
    if spec.files.is_empty() {
        return Vec::new();
    }
    let input: Value = serde_json::from_slice(&spec.input).unwrap_or_default();
    let address = |pointer: &String| {
        Some((
            pointer.clone(),
            input.pointer(pointer)?.as_str()?.to_owned(),
        ))
    };
    spec.files.iter().filter_map(address).collect()
}
