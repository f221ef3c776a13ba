//! The capacity of a job with hooks around it: they are asked between the slot and the model, and between
//! the model and the end of the job.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tidegate_core::port::{Admission, Admitted, OnCommitted, Running};
use tidegate_core::record::JobSpec;
use tidegate_core::{Event, JobKind, Metric, MetricMode, Outcome, OutputValue, Work};

use super::wire::{
    Job, ModerationAction, ModerationCall, ModerationMark, ModerationReply, PolicyCall, PolicyReply,
};
use super::{Hook, HookReply, Hooks, OnHookFailure};

/// The metric with the result of the moderation.
const METRIC: &str = "moderation";
/// The most bytes of output that are kept for the moderation.
const MAX_OUTPUT: usize = 16 << 20;

/// What the hooks know of a job.
struct HookedJob {
    hooks: Hooks,
    job: Job,
    /// The input without its secret fields; read only if there is a moderation.
    input: Map<String, Value>,
}

/// Asks the hooks about the job that gets this capacity.
pub(crate) fn hooked(
    admitted: Admitted,
    hooks: &Hooks,
    (spec, attempt, director): (&JobSpec, u32, &str),
) -> Admitted {
    if hooks.policy.is_none() && hooks.moderation.is_none() {
        return admitted;
    }
    let job = Arc::new(HookedJob {
        hooks: hooks.clone(),
        job: job_of(spec, attempt, director),
        input: match hooks.moderation {
            Some(_) => public_input(spec),
            None => Map::new(),
        },
    });
    let wrap = |admission| -> Box<dyn Admission> { Box::new(HookedAdmission { admission, job }) };
    match admitted {
        Admitted::Now(admission) => Admitted::Now(wrap(admission)),
        Admitted::Queued(pending) => Admitted::Queued(Box::pin(async move {
            let admission = pending.await?;
            Ok(wrap(admission))
        })),
    }
}

fn job_of(spec: &JobSpec, attempt: u32, director: &str) -> Job {
    let account = &spec.account;
    Job {
        id: spec.id.to_string(),
        account: if account.is_anonymous() {
            String::new()
        } else {
            account.as_str().to_owned()
        },
        kind: match spec.kind {
            JobKind::Prediction => "prediction",
            JobKind::Training => "training",
        },
        model: spec.target.model.clone(),
        version: spec.target.version.clone(),
        deployment: spec.target.deployment.as_ref().map(ToString::to_string),
        created_at: spec.created_at,
        attempt,
        director: director.to_owned(),
        context: spec.context.clone(),
    }
}

fn public_input(spec: &JobSpec) -> Map<String, Value> {
    let mut input: Map<String, Value> = serde_json::from_slice(&spec.input).unwrap_or_default();
    for secret in &spec.secrets {
        input.remove(secret);
    }
    input
}

/// The right to run a job, after the policy allows it.
struct HookedAdmission {
    admission: Box<dyn Admission>,
    job: Arc<HookedJob>,
}

#[async_trait]
impl Admission for HookedAdmission {
    async fn start(self: Box<Self>, work: Work) -> Box<dyn Running> {
        let Self { admission, job } = *self;
        if let Some(error) = job.policy_refusal().await {
            // Dropping the admission frees the slot.
            return Box::new(RefusedJob(Some(error)));
        }
        let running = admission.start(work).await;
        if job.hooks.moderation.is_none() {
            return running;
        }
        Box::new(ModeratedJob {
            running,
            job,
            output: Vec::new(),
            kept_bytes: 0,
            last_events: VecDeque::new(),
            outcome: None,
        })
    }
}

impl HookedJob {
    /// Why the job must not run, if it must not.
    async fn policy_refusal(&self) -> Option<String> {
        let policy = self.hooks.policy.as_ref()?;
        let call = PolicyCall { job: &self.job };
        let refusal = match policy.ask::<PolicyReply>(&call).await {
            HookReply::NoContent | HookReply::Decided(PolicyReply { allowed: true, .. }) => {
                return None;
            }
            HookReply::Decided(PolicyReply { reason, .. }) => reason.unwrap_or_default(),
            HookReply::Refused(reason) => reason,
            HookReply::Unavailable(error) => return self.unavailable("policy", policy, &error),
        };
        tracing::info!(
            job = self.job.id,
            reason = refusal,
            "the policy refused a job"
        );
        Some(with_reason("the job is not allowed to run", &refusal))
    }

    /// Why the job fails because a hook did not answer, if it fails.
    fn unavailable(&self, name: &str, hook: &Hook, error: &str) -> Option<String> {
        tracing::warn!(
            job = self.job.id,
            hook = name,
            error,
            "failed to ask a hook"
        );
        match hook.on_failure {
            OnHookFailure::Allow => None,
            OnHookFailure::Fail => Some(format!("the {name} hook did not answer; try again later")),
        }
    }

    /// The events at the end of a job that succeeded: a metric, and the outcome.
    async fn moderate(
        &self,
        values: &[Box<RawValue>],
        output: Option<OutputValue>,
    ) -> (Option<Metric>, Outcome) {
        let succeeded = Outcome::Succeeded { output };
        let Some(moderation) = &self.hooks.moderation else {
            return (None, succeeded);
        };
        let call = ModerationCall {
            job: &self.job,
            input: &self.input,
            output: values,
        };
        let reply = match moderation.ask(&call).await {
            HookReply::Decided(reply) => reply,
            HookReply::NoContent => ModerationReply {
                flagged: false,
                action: ModerationAction::Mark,
                reason: None,
                categories: Vec::new(),
            },
            HookReply::Refused(reason) => ModerationReply {
                flagged: true,
                action: ModerationAction::Fail,
                reason: Some(reason),
                categories: Vec::new(),
            },
            HookReply::Unavailable(error) => {
                let reason = self.unavailable("moderation", moderation, &error);
                let unknown = ModerationMark {
                    flagged: None,
                    reason: Some("the moderation hook did not answer".to_owned()),
                    categories: Vec::new(),
                };
                let outcome = match reason {
                    Some(error) => Outcome::Failed { error },
                    None => succeeded,
                };
                return (metric(&unknown), outcome);
            }
        };
        let ModerationReply {
            flagged,
            action,
            reason,
            categories,
        } = reply;
        let outcome = if flagged && action == ModerationAction::Fail {
            let error = with_reason(
                "the output was refused by the moderation",
                reason.as_deref().unwrap_or_default(),
            );
            Outcome::Failed { error }
        } else {
            succeeded
        };
        let mark = ModerationMark {
            flagged: Some(flagged),
            reason,
            categories,
        };
        (metric(&mark), outcome)
    }
}

fn metric(mark: &ModerationMark) -> Option<Metric> {
    Some(Metric {
        name: METRIC.to_owned(),
        value: serde_json::to_value(mark).ok()?,
        mode: MetricMode::Replace,
    })
}

fn with_reason(text: &str, reason: &str) -> String {
    if reason.is_empty() {
        text.to_owned()
    } else {
        format!("{text}: {reason}")
    }
}

/// A job that does not run.
struct RefusedJob(Option<String>);

#[async_trait]
impl Running for RefusedJob {
    async fn next(&mut self) -> Event {
        match self.0.take() {
            Some(error) => Event::Ended(Outcome::Failed { error }),
            None => std::future::pending().await,
        }
    }

    fn cancel(&mut self) {}
}

/// A job whose output is judged when it has succeeded.
struct ModeratedJob {
    running: Box<dyn Running>,
    job: Arc<HookedJob>,
    /// The values so far.
    output: Vec<Box<RawValue>>,
    kept_bytes: usize,
    /// The events after the moderation.
    last_events: VecDeque<Event>,
    /// What the model returned, while the hook is asked: the caller may drop the future and call again.
    outcome: Option<Option<OutputValue>>,
}

impl ModeratedJob {
    fn keep(&mut self, value: &OutputValue) {
        self.kept_bytes += value.json.len();
        if self.kept_bytes > MAX_OUTPUT {
            return;
        }
        let text = String::from_utf8_lossy(&value.json).into_owned();
        if let Ok(json) = RawValue::from_string(text) {
            self.output.push(json);
        }
    }
}

#[async_trait]
impl Running for ModeratedJob {
    async fn next(&mut self) -> Event {
        if let Some(event) = self.last_events.pop_front() {
            return event;
        }
        if self.outcome.is_none() {
            match self.running.next().await {
                Event::Ended(Outcome::Succeeded { output }) => {
                    if let Some(value) = &output {
                        self.keep(value);
                    }
                    self.outcome = Some(output);
                }
                event => {
                    if let Event::Output(value) = &event {
                        self.keep(value);
                    }
                    return event;
                }
            }
        }
        let output = self.outcome.clone().flatten();
        let (metric, outcome) = self.job.moderate(&self.output, output).await;
        self.last_events.push_back(Event::Ended(outcome));
        match metric {
            Some(metric) => Event::Metric(metric),
            None => self.last_events.pop_front().expect("it was just added"),
        }
    }

    fn refreshes(&self) -> bool {
        self.running.refreshes()
    }

    fn cancel(&mut self) {
        self.running.cancel();
    }

    fn on_committed(&mut self) -> Option<OnCommitted> {
        self.running.on_committed()
    }
}
