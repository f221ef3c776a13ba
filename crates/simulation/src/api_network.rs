//! The calls of a simulated director to the API: they call the real handlers in this process, and are lost,
//! late or repeated on the way.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::director_api::{
    FinishCall, FinishReply, HeartbeatCall, HeartbeatReply, LeaseCall, LeaseReply, LeaseToken,
    PublishCall, PublishReply, RegisterCall, RegisterReply, ReleaseCall, UpdateCall, UpdateReply,
    VersionCall, VersionReply,
};
use tidegate_core::port::BoxFuture;
use tidegate_core::random;
use tidegate_director::{ApiCalls, ApiError};
use tidegate_service::{CallError, DirectorCalls};
use tokio_util::task::TaskTracker;

use crate::clock::on_machine;
use crate::faults::{Faults, Loss};
use crate::link::ProcessLife;

/// The longest time of a small call, as in `tidegate_director`.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// The longest time of a call with a result.
const RESULT_LIMIT: Duration = Duration::from_secs(30);
/// The longest pause between two calls.
const MAX_PAUSE: Duration = Duration::from_secs(3);
/// How long after it was sent a request may arrive.
const LATEST: Duration = Duration::from_secs(90);
/// How many processes of the API a director knows.
const KNOWN_APIS: usize = 2;

/// A process of the API that runs.
#[derive(Clone)]
pub(crate) struct ApiAddress {
    pub(crate) calls: Arc<DirectorCalls>,
    /// How far its clock is ahead, in milliseconds.
    pub(crate) ahead: i64,
    pub(crate) life: ProcessLife,
}

/// The network between directors and the API.
pub(crate) struct ApiNetwork {
    apis: Mutex<Vec<Option<ApiAddress>>>,
    faults: Arc<Faults>,
    /// Requests that arrive after their sender gave up.
    late: TaskTracker,
}

impl ApiNetwork {
    pub(crate) fn new(apis: usize, faults: Arc<Faults>) -> Self {
        Self {
            apis: Mutex::new(vec![None; apis]),
            faults,
            late: TaskTracker::new(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<ApiAddress>>> {
        self.apis.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process can be reached from now on, or cannot.
    pub(crate) fn set(&self, index: usize, address: Option<ApiAddress>) {
        self.lock()[index] = address;
    }

    fn get(&self, index: usize) -> Option<ApiAddress> {
        let apis = self.lock();
        apis.get(index % apis.len().max(1)).cloned().flatten()
    }
}

/// The calls of one director.
pub(crate) struct SimulatedApi {
    pub(crate) network: Arc<ApiNetwork>,
    pub(crate) director: String,
    pub(crate) life: ProcessLife,
    /// The process that is called first.
    pub(crate) first: usize,
    /// Which of the known processes replied last.
    pub(crate) current: AtomicUsize,
    pub(crate) failures: AtomicUsize,
}

/// A handler of the API.
type Handler<C, R> = fn(Arc<DirectorCalls>, C) -> BoxFuture<Result<R, CallError>>;

impl SimulatedApi {
    async fn call<C, R>(
        &self,
        call: &C,
        limit: Duration,
        handler: Handler<C, R>,
    ) -> Result<R, ApiError>
    where
        C: Clone + Send + Sync + 'static,
        R: Send + 'static,
    {
        let mut last = unavailable("not called");
        for _ in 0..KNOWN_APIS {
            self.life.or_never().await;
            let index = self.first + self.current.load(Ordering::Relaxed);
            let attempt = self.attempt(index, call.clone(), limit, handler);
            let result = tokio::time::timeout(limit, attempt).await;
            self.life.or_never().await;
            match result.unwrap_or_else(|_| Err(unavailable("no reply"))) {
                Err(error) if !error.is_permanent() => {
                    let next = (self.current.load(Ordering::Relaxed) + 1) % KNOWN_APIS;
                    self.current.store(next, Ordering::Relaxed);
                    last = error;
                }
                result => {
                    self.failures.store(0, Ordering::Relaxed);
                    return result;
                }
            }
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        Err(last)
    }

    async fn attempt<C, R>(
        &self,
        index: usize,
        call: C,
        limit: Duration,
        handler: Handler<C, R>,
    ) -> Result<R, ApiError>
    where
        C: Clone + Send + Sync + 'static,
        R: Send + 'static,
    {
        let faults = &self.network.faults;
        let plan = faults.plan();
        let draw = faults.random().fraction();
        let rates = faults.rates();
        tokio::time::sleep(plan.request).await;
        if faults.is_cut_off(&self.director) || plan.loss == Some(Loss::Request) {
            tokio::time::sleep(limit).await;
            return Err(unavailable("no reply"));
        }
        if draw < rates.late + rates.duplicate {
            let after = faults.random().between(Duration::ZERO, LATEST);
            self.deliver_later(index, call.clone(), after, handler);
            if draw < rates.late {
                tokio::time::sleep(limit).await;
                return Err(unavailable("no reply"));
            }
        }
        let Some(api) = self.network.get(index) else {
            return Err(unavailable("the process does not run"));
        };
        let handled = on_machine(api.ahead, handler(Arc::clone(&api.calls), call));
        let reply = tokio::select! {
            biased;
            () = api.life.crashed() => return Err(unavailable("the process crashed")),
            reply = handled => reply,
        };
        if plan.loss == Some(Loss::Reply) || faults.is_cut_off(&self.director) {
            tokio::time::sleep(limit).await;
            return Err(unavailable("no reply"));
        }
        tokio::time::sleep(plan.reply).await;
        reply.map_err(|error| match error {
            CallError::InvalidToken => ApiError::Refused {
                host: "api".to_owned(),
                status: 403,
                message: error.to_string(),
            },
            error => unavailable(&error.to_string()),
        })
    }

    /// Delivers a request after its sender may have given up. The reply reaches no process.
    fn deliver_later<C, R>(&self, index: usize, call: C, after: Duration, handler: Handler<C, R>)
    where
        C: Send + 'static,
        R: Send + 'static,
    {
        let network = Arc::clone(&self.network);
        self.network.late.spawn(async move {
            tokio::time::sleep(after).await;
            if let Some(api) = network.get(index) {
                let handled = on_machine(api.ahead, handler(api.calls, call));
                tokio::select! {
                    biased;
                    () = api.life.crashed() => {}
                    reply = handled => drop(reply),
                }
            }
        });
    }
}

fn unavailable(message: &str) -> ApiError {
    ApiError::Unavailable {
        host: "api".to_owned(),
        status: 503,
        message: message.to_owned(),
    }
}

#[async_trait]
impl ApiCalls for SimulatedApi {
    fn hosts(&self) -> String {
        "simulated".to_owned()
    }

    fn pause(&self) -> Duration {
        let failures = self
            .failures
            .load(Ordering::Relaxed)
            .saturating_sub(1)
            .min(10);
        let pause = Duration::from_millis(100 << failures).min(MAX_PAUSE);
        pause.mul_f64(0.5 + 0.5 * random::fraction())
    }

    async fn heartbeat(
        &self,
        call: &HeartbeatCall,
        limit: Duration,
    ) -> Result<HeartbeatReply, ApiError> {
        self.call(call, limit, |api, call| {
            Box::pin(async move { api.heartbeat(call).await })
        })
        .await
    }

    async fn register(&self, call: &RegisterCall) -> Result<RegisterReply, ApiError> {
        self.call(call, RESULT_LIMIT, |api, call| {
            Box::pin(async move { api.register(call).await })
        })
        .await
    }

    async fn lease(&self, call: &LeaseCall) -> Result<LeaseReply, ApiError> {
        self.call(call, CALL_LIMIT, |api, call| {
            Box::pin(async move { api.lease(call).await })
        })
        .await
    }

    async fn release(&self, call: &ReleaseCall) -> Result<(), ApiError> {
        self.call(call, CALL_LIMIT, |api, call| {
            Box::pin(async move { api.release(call).await })
        })
        .await
    }

    async fn update(&self, call: &UpdateCall) -> Result<UpdateReply, ApiError> {
        self.call(call, RESULT_LIMIT, |api, call| {
            Box::pin(async move { api.update(call).await })
        })
        .await
    }

    async fn finish(&self, call: &FinishCall) -> Result<FinishReply, ApiError> {
        self.call(call, RESULT_LIMIT, |api, call| {
            Box::pin(async move { api.finish(call).await })
        })
        .await
    }

    async fn publish(&self, call: &PublishCall) -> Result<PublishReply, ApiError> {
        self.call(call, RESULT_LIMIT, |api, call| {
            Box::pin(async move { api.publish(call).await })
        })
        .await
    }

    async fn download(
        &self,
        _token: &LeaseToken,
        _id: &str,
        _folder: &Path,
    ) -> Result<Option<PathBuf>, ApiError> {
        Ok(None)
    }

    async fn create_version(&self, call: &VersionCall) -> Result<VersionReply, ApiError> {
        self.call(call, RESULT_LIMIT, |api, call| {
            Box::pin(async move { api.create_version(call).await })
        })
        .await
    }

    async fn download_weights(&self, _key: &str, _to: &Path) -> Result<bool, ApiError> {
        Ok(false)
    }

    async fn upload(
        &self,
        _token: &LeaseToken,
        _name: &str,
        _mime: &str,
        _file: (&File, u64),
    ) -> Result<String, ApiError> {
        Err(ApiError::NoFileStore {
            host: "simulated".to_owned(),
        })
    }
}
