//! Signs of life of a handler that is served: Runpod's own package sends them from its server too, and a platform
//! takes a realtime worker for dead that sends none.

use std::time::Duration;

use tidegate_net::{AllowedNetworks, Client, Config};
use tidegate_runpod_worker::{PlatformClient, PlatformUrls};

use crate::model_source::ModelSource;
use crate::runpod_env::HeartbeatEnv;
use crate::usage_error::UsageError;

/// Where they go, and how often.
pub(super) struct Heartbeat {
    platform: PlatformClient,
    every: Duration,
}

impl Heartbeat {
    /// One for a script, where the environment says where to. Without the worker's name nobody would know whose they
    /// are.
    pub(super) fn of(model: Option<&ModelSource>) -> Result<Option<Self>, UsageError> {
        let (
            Some(_),
            Some(HeartbeatEnv {
                ping,
                worker,
                key,
                every,
            }),
        ) = (
            model.filter(|model| model.is_script()),
            HeartbeatEnv::read()?,
        )
        else {
            return Ok(None);
        };
        let addresses = PlatformUrls::ping_only(&ping, &worker).map_err(|bad| {
            UsageError::new(bad.to_string())
                .hint("set it to an address that the platform gives out, or leave it away")
        })?;
        let client = Client::new(Config {
            networks: AllowedNetworks::all(),
            ..Config::default()
        });
        Ok(Some(Self {
            platform: PlatformClient::new(client, addresses, key.as_deref()),
            every,
        }))
    }

    /// Sends them for ever. They name no jobs: those that are here did not come from the platform.
    pub(super) async fn beat(beats: Option<Self>) {
        let Some(Self { platform, every }) = beats else {
            return std::future::pending().await;
        };
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(reason) = platform
                .ping(&[], every.max(Duration::from_secs(1)) * 2)
                .await
            {
                tracing::warn!(reason, "the platform did not take a sign of life");
            }
        }
    }
}
