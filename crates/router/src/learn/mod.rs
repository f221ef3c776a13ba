//! Learns the models of the backends of `--backend`, so that a fleet needs no file.
//!
//! Each backend has a task that asks it for its kind and its models: until it answers, then periodically,
//! and when it is healthy again. A backend that fails keeps the models that it had.

mod ask;
mod backends;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::random;
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub(crate) use ask::{LearnedBackend, LearnedModel};
pub(crate) use backends::LearnedBackends;

use crate::control::ControlShared;
use crate::discovery::RetryPause;
use crate::endpoint::EndpointKey;
use crate::fleet::BackendFlag;

/// The time between two questions to a backend that has told its models.
const INTERVAL: Duration = Duration::from_secs(30);
/// The same for a backend without models: it may load one soon.
const EMPTY_INTERVAL: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Wakes the tasks of backends.
#[derive(Default)]
pub(crate) struct LearnSignals(HashMap<EndpointKey, Notify>);

impl LearnSignals {
    pub(crate) fn new(flags: &[BackendFlag]) -> Self {
        let key = |flag: &BackendFlag| EndpointKey::of(&flag.url);
        Self(
            flags
                .iter()
                .map(|flag| (key(flag), Notify::new()))
                .collect(),
        )
    }

    /// Asks a backend again.
    pub(crate) fn ask_again(&self, backend: &EndpointKey) {
        if let Some(signal) = self.0.get(backend) {
            signal.notify_one();
        }
    }

    async fn wait(&self, backend: &EndpointKey) {
        match self.0.get(backend) {
            Some(signal) => signal.notified().await,
            None => std::future::pending().await,
        }
    }
}

/// Starts the tasks.
pub(crate) fn start(control: &Arc<ControlShared>, flags: &[BackendFlag]) {
    for flag in flags {
        let learning = run(control.clone(), flag.clone());
        let stop = control.stop.clone();
        control
            .tasks
            .spawn(stop.run_until_cancelled_owned(learning));
    }
}

/// Asks all backends once, at the same time.
pub(crate) async fn ask_all(control: &Arc<ControlShared>, flags: &[BackendFlag]) {
    let mut asking = JoinSet::new();
    for flag in flags {
        let (control, flag) = (control.clone(), flag.clone());
        asking.spawn(async move {
            learn(&control, &flag).await;
        });
    }
    asking.join_all().await;
}

async fn run(control: Arc<ControlShared>, flag: BackendFlag) {
    let mut failures = RetryPause::new(FIRST_PAUSE, LAST_PAUSE);
    let key = EndpointKey::of(&flag.url);
    loop {
        let pause = match learn(&control, &flag).await {
            Some(models) => {
                failures.reset();
                let interval = if models == 0 {
                    EMPTY_INTERVAL
                } else {
                    INTERVAL
                };
                interval.mul_f64(1.0 - 0.1 * random::fraction())
            }
            None => failures.next(),
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = control.learn_signals.wait(&key) => {}
        }
    }
}

/// Asks a backend and uses its answer. Returns the number of its models, if it answered.
async fn learn(control: &Arc<ControlShared>, flag: &BackendFlag) -> Option<usize> {
    match ask::ask(&control.client, flag).await {
        Ok(learned) => {
            let count = learned.models.len();
            control.update(|state| state.learned(flag, learned));
            Some(count)
        }
        Err(error) => {
            control.update(|state| state.learning_failed(flag, error.to_string()));
            None
        }
    }
}
