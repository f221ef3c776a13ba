//! The heartbeats of a served handler. Runpod's own server sends them too, and a platform considers a
//! realtime worker without heartbeats dead.

use std::time::Duration;

use tidegate_net::{AllowedNetworks, Client, Config};
use tidegate_runpod_worker::{PlatformClient, PlatformUrls};

use crate::model_source::ModelSource;
use crate::runpod_env::HeartbeatEnv;
use crate::usage_error::UsageError;

/// The receiver of the heartbeats, and their interval.
pub(super) struct Heartbeat {
    platform: PlatformClient,
    every: Duration,
}

impl Heartbeat {
    /// Heartbeats for a script, if the environment has the address and the id of the worker.
    pub(super) fn from_env(model: Option<&ModelSource>) -> Result<Option<Self>, UsageError> {
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
                .hint("set it to the address that the platform provides, or unset it")
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

    /// Sends heartbeats forever. They name no jobs, because the jobs do not come from the platform.
    pub(super) async fn run(heartbeat: Option<Self>) {
        let Some(Self { platform, every }) = heartbeat else {
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
                tracing::warn!(reason, "failed to send heartbeat");
            }
        }
    }
}
