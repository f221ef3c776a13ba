//! Joins routers: registers this server with each of them while its models are ready.
//!
//! A registration is renewed long before it ends, so that a router that was restarted knows the server
//! again after a moment. It is removed before the server drains.

mod client;

use std::time::Duration;

use futures_util::future::join_all;
use tidegate_core::health::Health;
use tidegate_router::join::JoinRequest;
use tidegate_service::{ModelRegistry, ServedModel};
use tokio::time::Instant;

use crate::cli::JoinArgs;
use crate::secrets;
use crate::usage_error::UsageError;
use client::RouterClient;

/// The variable with the join key.
const KEY_VARIABLE: &str = "TIDEGATE_JOIN_KEY";
/// The kind of this server, for the router.
const KIND: &str = "tidegate";
/// How often the state of the models is read.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The duration that is asked for.
const TTL_S: f64 = 30.0;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(10);

/// The routers to join, and what they receive.
pub(crate) struct RouterMembership {
    routers: Vec<RouterClient>,
    url: String,
    names: Vec<String>,
    models: ModelRegistry,
    loads_on_demand: LoadsOnDemand,
}

/// Whether models that are not loaded accept requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadsOnDemand {
    /// They load when a request arrives.
    Yes,
    /// They load at the start.
    No,
}

impl RouterMembership {
    /// The routers of the command line; `None` if there are none. `own_url` is where this server is
    /// reached unless the arguments say it.
    pub(crate) fn new(
        args: &JoinArgs,
        own_url: String,
        models: ModelRegistry,
        loads_on_demand: LoadsOnDemand,
    ) -> Result<Option<Self>, UsageError> {
        if args.routers.is_empty() {
            return Ok(None);
        }
        let key = read_key(args)?;
        let routers = args.routers.iter().map(|url| RouterClient::new(url, &key));
        let url = args.url.as_ref().map(|url| url.as_str().to_owned());
        Ok(Some(Self {
            routers: routers.collect::<Result<_, _>>()?,
            url: url.unwrap_or(own_url).trim_end_matches('/').to_owned(),
            names: args.models.clone(),
            models,
            loads_on_demand,
        }))
    }

    /// Keeps the registrations current, forever.
    pub(crate) async fn run(membership: Option<&Self>) {
        match membership {
            Some(membership) => {
                let routers = membership.routers.iter();
                join_all(routers.map(|router| membership.maintain(router))).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Removes the registrations, so that no router sends further requests.
    pub(crate) async fn leave(membership: Option<&Self>) {
        if let Some(membership) = membership {
            let routers = membership.routers.iter();
            join_all(routers.map(|router| router.leave(&membership.url))).await;
        }
    }

    /// The registration with one router: sent when the ready models change, and in time before it ends.
    async fn maintain(&self, router: &RouterClient) {
        let mut current: Option<JoinRequest> = None;
        let mut due = Instant::now();
        let mut failures = 0;
        loop {
            let request = self.request().await;
            let is_changed = failures == 0 && request != current;
            if request.is_none() && current.is_some() {
                router.leave(&self.url).await;
                current = None;
            } else if let Some(request) = request
                && (is_changed || Instant::now() >= due)
            {
                due = Instant::now()
                    + match router
                        .join(&request, failures == 0 && current.is_none())
                        .await
                    {
                        Some(renew_after) => {
                            failures = 0;
                            current = Some(request);
                            renew_after
                        }
                        None => {
                            failures += 1;
                            (FIRST_PAUSE * failures).min(LAST_PAUSE)
                        }
                    };
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// The registration that is true now; `None` while no model is ready.
    async fn request(&self) -> Option<JoinRequest> {
        let mut ready = Vec::new();
        let mut slots = 0;
        for model in self.models.all() {
            if self.is_ready(&model).await {
                slots += model.current().executor().pool_status().slots;
                ready.push(model.name().to_owned());
            }
        }
        if ready.is_empty() {
            return None;
        }
        let permits = u32::try_from(slots).ok().filter(|slots| *slots > 0);
        Some(JoinRequest {
            url: self.url.clone(),
            models: match self.names.is_empty() {
                true => ready,
                false => self.names.clone(),
            },
            kind: Some(KIND.to_owned()),
            permits,
            ttl_s: Some(TTL_S),
        })
    }

    async fn is_ready(&self, model: &ServedModel) -> bool {
        match model.jobs().health().await.health {
            Health::Ready | Health::Busy => true,
            Health::Unknown | Health::Starting => self.loads_on_demand == LoadsOnDemand::Yes,
            Health::SetupFailed | Health::Defunct => false,
        }
    }
}

fn read_key(args: &JoinArgs) -> Result<String, UsageError> {
    let text = match &args.key_file {
        Some(file) => std::fs::read_to_string(file).map_err(|error| {
            let file = file.display();
            UsageError::new(format!("failed to read --join-key-file `{file}`: {error}"))
                .hint("give a file that this user can read")
        })?,
        None => secrets::variable(KEY_VARIABLE).unwrap_or_default(),
    };
    let key = text.trim();
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = "--join needs the join key of the router: one line of visible characters";
        let hint = format!(
            "create one with `tidegate token new --account NAME`, put its hash into `[[join_key]]` of the router, and give the key with --join-key-file or {KEY_VARIABLE}"
        );
        return Err(UsageError::new(message).hint(hint));
    }
    Ok(key.to_owned())
}
