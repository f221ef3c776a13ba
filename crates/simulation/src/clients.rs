//! Simulated clients: they create jobs at any process of the API, repeat what failed, and cancel some jobs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::record::Api;
use tidegate_core::{Account, JobId, JobKind};
use tidegate_net::Url;
use tidegate_net::header::HeaderMap;
use tidegate_service::{
    EventFilter, OnDuplicateId, ResponseMode, Submission, Submitted, Webhook, WebhookEvent,
};

use crate::api_process::ApiProcess;
use crate::checker::HEAVY_ACCOUNT;
use crate::clock::on_machine;
use crate::faults::Loss;
use crate::model::ModelInput;
use crate::random::SeededRandom;
use crate::receiver::renderer;
use crate::world::World;

/// How long a client waits for a reply.
const PATIENCE: Duration = Duration::from_secs(15);
/// The number of hosts that receive webhooks.
const RECEIVERS: usize = 8;

/// The processes of the API that run.
pub(crate) type Apis = Mutex<Vec<Option<ApiProcess>>>;

/// The clients of a run.
pub(crate) struct Clients {
    pub(crate) world: Arc<World>,
    pub(crate) apis: Arc<Apis>,
    pub(crate) random: SeededRandom,
}

/// What a client wants.
struct PlannedJob {
    account: Account,
    id: Option<JobId>,
    input: ModelInput,
    webhook: Option<Arc<Webhook>>,
    deadline: Option<Duration>,
    cancel_after: Option<Duration>,
}

impl Clients {
    /// Creates all jobs, at the rate of the scenario.
    pub(crate) async fn run(self: Arc<Self>) {
        let scenario = &self.world.scenario;
        #[expect(clippy::cast_precision_loss, reason = "a number of directors")]
        let capacity = (scenario.directors * scenario.slots) as f64;
        let pause = scenario.run_time.div_f64(capacity * scenario.load);
        let mut left = scenario.jobs;
        // Less than a millisecond between two jobs is no time for the clock of tokio.
        let mut due = tokio::time::Instant::now();
        while left > 0 {
            // A burst of the same account at times.
            let count = if self.random.chance(0.01) {
                20.min(left)
            } else {
                1
            };
            let account = self.account();
            for _ in 0..count {
                let (clients, account) = (Arc::clone(&self), account.clone());
                let job = self.plan(account);
                self.world.tasks.spawn(clients.create(job));
            }
            left -= count;
            due += self.random.exponential(pause) * u32::try_from(count).unwrap_or(1);
            tokio::time::sleep_until(due).await;
        }
    }

    fn account(&self) -> Account {
        let name = if self.random.chance(0.5) {
            HEAVY_ACCOUNT.to_owned()
        } else {
            format!("light-{}", self.random.below(self.world.scenario.accounts))
        };
        Account::parse(&name).expect("the name is valid")
    }

    fn plan(&self, account: Account) -> PlannedJob {
        let random = &self.random;
        let run_time = self.world.scenario.run_time;
        let takes = random.exponential(run_time).min(run_time * 15);
        let some_time = || random.between(Duration::ZERO, run_time * 4);
        let has_id = random.chance(0.1);
        PlannedJob {
            account,
            id: has_id.then(|| {
                let bits = u128::from(random.bits()) << 64 | u128::from(random.bits());
                JobId::from_random(bits)
            }),
            input: ModelInput {
                takes: u64::try_from(takes.as_millis()).unwrap_or_default(),
                lines: if random.chance(0.1) { 3 } else { 0 },
                fails: random.chance(0.02),
            },
            webhook: random.chance(0.2).then(|| self.webhook()),
            deadline: random.chance(0.05).then(|| some_time() + run_time),
            cancel_after: random.chance(0.05).then(some_time),
        }
    }

    fn webhook(&self) -> Arc<Webhook> {
        let host = self.random.below(RECEIVERS);
        let url = format!("http://receiver-{host}.example/hook");
        let filter = if self.random.chance(0.3) {
            EventFilter::ALL
        } else {
            EventFilter::only([WebhookEvent::Completed])
        };
        Arc::new(Webhook {
            url: Url::parse(&url).expect("the URL is valid"),
            filter,
            headers: HeaderMap::new(),
            updates: Api::Replicate.policies().updates,
            origin: None,
            streams: false,
            streams_files: false,
            renderer: renderer(),
        })
    }

    /// A process of the API; a load balancer chooses it.
    fn any_api(&self) -> Option<ApiProcess> {
        let apis = self.apis.lock().unwrap_or_else(PoisonError::into_inner);
        apis.get(self.random.below(apis.len())).cloned().flatten()
    }

    async fn pause(&self) {
        let pause = self
            .random
            .between(Duration::from_millis(100), Duration::from_secs(2));
        tokio::time::sleep(pause).await;
    }

    /// Creates one job, however often it takes.
    async fn create(self: Arc<Self>, job: PlannedJob) {
        let id = loop {
            match self.try_create(&job).await {
                Some(id) => break id,
                None => self.pause().await,
            }
        };
        self.world.checker.accepted(&id);
        if let Some(after) = job.cancel_after {
            tokio::time::sleep(after).await;
            while !self.try_cancel(&job.account, &id).await {
                self.pause().await;
            }
        }
    }

    async fn try_create(&self, job: &PlannedJob) -> Option<JobId> {
        let plan = self.world.faults.plan();
        tokio::time::sleep(plan.request).await;
        let api = self.any_api()?;
        let service = api.jobs()?;
        let submission = Submission {
            account: job.account.clone(),
            id: job.id.clone(),
            kind: JobKind::Prediction,
            input: Bytes::from(serde_json::to_vec(&job.input).expect("an input serializes")),
            webhook: job.webhook.clone(),
            context: BTreeMap::new(),
            response_mode: ResponseMode::Async,
            on_duplicate: OnDuplicateId::Answer,
            deadline: job.deadline,
            api: Api::Replicate,
            policies: Api::Replicate.policies(),
            deployment: None,
            destination: None,
            warnings: Vec::new(),
        };
        let submit = on_machine(api.ahead, service.submit(submission));
        let submitted = tokio::select! {
            biased;
            () = api.life.crashed() => return None,
            submitted = tokio::time::timeout(PATIENCE, submit) => submitted.ok()?.ok()?,
        };
        tokio::time::sleep(plan.reply).await;
        let id = match submitted {
            Submitted::New(ticket) => ticket.detach().id().clone(),
            Submitted::Running(job) | Submitted::Ended(job) => job.id().clone(),
        };
        plan.loss.is_none().then_some(id)
    }

    /// Cancels a job; returns whether there was a reply.
    async fn try_cancel(&self, account: &Account, id: &JobId) -> bool {
        let plan = self.world.faults.plan();
        tokio::time::sleep(plan.request).await;
        let Some(api) = self.any_api() else {
            return false;
        };
        let Some(service) = api.jobs() else {
            return false;
        };
        let cancel = on_machine(api.ahead, service.cancel(account, id));
        let canceled = tokio::select! {
            biased;
            () = api.life.crashed() => return false,
            canceled = tokio::time::timeout(PATIENCE, cancel) => canceled,
        };
        match canceled {
            Ok(Ok(was_open)) if plan.loss != Some(Loss::Reply) => {
                if was_open {
                    self.world.checker.cancel_acknowledged(id);
                }
                true
            }
            Ok(_) | Err(_) => false,
        }
    }
}
