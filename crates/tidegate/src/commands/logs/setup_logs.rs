//! The logs of the setup of a model: what the server has, and what the setup prints next.

use serde::Deserialize;

use crate::admin_client::AdminClient;

/// How long one request waits for new logs.
const WAIT_S: &str = "20";

#[derive(Debug, Deserialize)]
struct SetupChunk {
    logs: String,
    next: usize,
    over: bool,
    started_at: Option<String>,
}

/// Reads the logs of the setups of a model from the begin on.
pub(super) struct SetupLogs<'a> {
    server: &'a AdminClient,
    owner: &'a str,
    name: &'a str,
    next: usize,
    /// The setup that `next` belongs to.
    started_at: Option<String>,
}

/// What a setup has printed since the last time.
pub(super) struct SetupText {
    pub(super) text: String,
    /// Whether the setup has ended, so that the next request does not wait.
    pub(super) is_over: bool,
}

impl<'a> SetupLogs<'a> {
    /// The setup of this model; `None` if the name has no owner, as that of an endpoint.
    pub(super) fn of(server: &'a AdminClient, model: &'a str) -> Option<Self> {
        let (owner, name) = model.split_once('/')?;
        Some(Self {
            server,
            owner,
            name,
            next: 0,
            started_at: None,
        })
    }

    /// What the setup has printed, without waiting for more.
    pub(super) async fn read(&mut self) -> anyhow::Result<SetupText> {
        self.request("0").await
    }

    /// What the setup prints next. Continues with the next setup if the model is loaded again.
    pub(super) async fn follow(&mut self) -> anyhow::Result<SetupText> {
        self.request(WAIT_S).await
    }

    async fn request(&mut self, wait: &str) -> anyhow::Result<SetupText> {
        let from = self.next.to_string();
        let path = ["admin", "models", self.owner, self.name, "logs"];
        let query = [("from", from.as_str()), ("wait", wait)];
        let chunk: SetupChunk = self.server.get(&path, &query).await?;
        if self.next > 0 && chunk.started_at != self.started_at {
            // The position belongs to an earlier setup.
            self.next = 0;
            self.started_at = chunk.started_at;
            return Ok(SetupText {
                text: String::new(),
                is_over: false,
            });
        }
        self.next = chunk.next;
        self.started_at = chunk.started_at;
        Ok(SetupText {
            is_over: chunk.over && chunk.logs.is_empty(),
            text: chunk.logs,
        })
    }
}
