//! Sets up the endpoints of a server: those of the command line and of the previous run, with their
//! batches, read positions and worker keys.
//!
//! 1. [`EndpointSetup::open`], before the jobs of the previous run are resumed.
//! 2. [`EndpointSetup::resume`], after that.
//! 3. [`EndpointSetup::config`], for the routes.
//! 4. [`EndpointSetup::stop_handout`] and [`EndpointSetup::save`], when the server shuts down.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_core::chain;
use tidegate_core::record::Target;
use tidegate_core::store::Documents;
use tidegate_http::runpod::platform::{
    self as api, Batches, Endpoint, EndpointFactory, EndpointLimits, EndpointRegistry,
    OpenEndpointError, StreamCursors, WorkerKeys,
};
use tidegate_http::ui::{EndpointSource, ListedEndpoint};
use tidegate_remote::RemoteExecutor;
use tidegate_service::{ModelRegistry, OnLost, Resumed};
use tidegate_store::MemoryDocuments;

use crate::cli::EndpointArgs;
use crate::replicate_setup::persistent_secret;
use crate::startup::ListeningServer;
use crate::usage_error::UsageError;

/// How often a job may start if the server dies each time. The job is rarely the reason: it runs on a
/// worker, which keeps it meanwhile. Lost workers are counted separately.
const ATTEMPTS: u32 = 100;
/// How long a request body may make no progress.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the server hands out no jobs after it has loaded those of the previous run.
const HANDOUT_PAUSE: Duration = Duration::from_secs(4);
/// The name of the secret from which the keys of workers are derived.
const WORKER_SECRET: &str = "runpod-worker-secret";

/// The endpoints of a server, and what belongs to them.
pub(crate) struct EndpointSetup {
    pub(crate) endpoints: EndpointRegistry,
    batches: Batches,
    stream_cursors: StreamCursors,
    /// The documents of the data directory, if there is one.
    documents: Option<Arc<dyn Documents>>,
}

impl EndpointSetup {
    /// Opens the endpoints of the previous run and those of the command line.
    pub(crate) async fn open(
        args: &EndpointArgs,
        models: &ModelRegistry,
        documents: Option<Arc<dyn Documents>>,
    ) -> anyhow::Result<Self> {
        let endpoints = EndpointRegistry::new(documents.clone(), factory(args, models));
        endpoints
            .resume()
            .await
            .context("failed to read the endpoints of the previous run")?;
        for name in &args.endpoints {
            endpoints.add(name).await.map_err(|error| match error {
                OpenEndpointError::Name(error) => {
                    UsageError::new(format!("--endpoint `{name}`: {error}")).into()
                }
                OpenEndpointError::Store(_) => anyhow::Error::new(error),
            })?;
        }
        Ok(Self::of(endpoints, StreamCursors::of_server(), documents))
    }

    /// Opens one endpoint that this process of a cluster owns.
    pub(crate) async fn open_owned(
        args: &EndpointArgs,
        models: &ModelRegistry,
        documents: Arc<dyn Documents>,
        name: &str,
    ) -> anyhow::Result<Self> {
        let documents = Some(documents);
        let endpoints = EndpointRegistry::new(documents.clone(), factory(args, models));
        endpoints.add(name).await?;
        Ok(Self::of(
            endpoints,
            StreamCursors::of_endpoint(name),
            documents,
        ))
    }

    fn of(
        endpoints: EndpointRegistry,
        stream_cursors: StreamCursors,
        documents: Option<Arc<dyn Documents>>,
    ) -> Self {
        let for_batches = documents
            .clone()
            .unwrap_or_else(|| Arc::new(MemoryDocuments::default()));
        Self {
            batches: Batches::new(for_batches, endpoints.clone()),
            endpoints,
            stream_cursors,
            documents,
        }
    }

    /// The endpoints, for the web UI.
    pub(crate) fn listed(&self) -> EndpointSource {
        let endpoints = self.endpoints.clone();
        Arc::new(move || {
            let listed = endpoints.all().into_iter().map(|endpoint| ListedEndpoint {
                name: endpoint.name.clone(),
                endpoint: Some(endpoint),
            });
            listed.collect()
        })
    }

    /// Resumes batches and read positions of the previous run, after its jobs.
    pub(crate) async fn resume(&self, resumed: Resumed) -> anyhow::Result<()> {
        if resumed.queued > 0 || resumed.is_loading {
            // Workers may still run some of these jobs, and name them in their next heartbeat.
            for endpoint in self.endpoints.all() {
                endpoint.remote.pause_handout();
                let remote = endpoint.remote.clone();
                endpoint
                    .jobs
                    .when_loaded(move || remote.resume_handout(HANDOUT_PAUSE));
            }
        }
        self.batches
            .resume()
            .await
            .context("failed to read the batches of the previous run")?;
        if let Some(documents) = self.documents.as_deref() {
            self.stream_cursors
                .restore(documents)
                .await
                .context("failed to read the stream cursors of the previous run")?;
        }
        Ok(())
    }

    /// The configuration of the API. `base_url` is the URL of this server for workers.
    pub(crate) async fn config(
        &self,
        args: &EndpointArgs,
        server: &ListeningServer,
        base_url: String,
        max_body: usize,
    ) -> anyhow::Result<api::Config> {
        let worker_keys = worker_keys(server, self.documents.as_deref()).await?;
        Ok(self.config_with(args, worker_keys, base_url, max_body))
    }

    /// The same, with these keys of workers.
    pub(crate) fn config_with(
        &self,
        args: &EndpointArgs,
        worker_keys: Option<WorkerKeys>,
        base_url: String,
        max_body: usize,
    ) -> api::Config {
        api::Config {
            max_body,
            body_timeout: BODY_TIMEOUT,
            worker_keys,
            base_url,
            limits: if args.cloud_limits {
                EndpointLimits::cloud()
            } else {
                EndpointLimits::default()
            },
            batches: self.batches.clone(),
            stream_cursors: self.stream_cursors.clone(),
        }
    }

    /// The names of the endpoints, for the log.
    pub(crate) fn names(&self) -> String {
        let endpoints = self.endpoints.all();
        let names: Vec<&str> = endpoints
            .iter()
            .map(|endpoint| endpoint.name.as_str())
            .collect();
        names.join(",")
    }

    /// Says in the log how a worker is started. Without one the jobs of an endpoint wait, also next to models.
    pub(crate) fn log_how_to_start_a_worker(&self, url: &str) {
        let endpoints = self.endpoints.all();
        let name = match &endpoints[..] {
            [] => return,
            [endpoint] => endpoint.name.as_str(),
            [_, ..] => "NAME",
        };
        tracing::info!(
            "jobs of endpoints run on workers that connect to this server; \
             `tidegate endpoints env {name} --url {url}` prints the environment of a worker"
        );
    }

    /// Hands out no more jobs, and starts no more requests of batches.
    pub(crate) async fn stop_handout(&self) {
        self.batches.close().await;
        for endpoint in self.endpoints.all() {
            endpoint.remote.close();
        }
    }

    /// Saves the read positions for the next run.
    pub(crate) async fn save(&self) {
        if let Some(documents) = self.documents.as_deref()
            && let Err(error) = self.stream_cursors.save(documents).await
        {
            tracing::warn!(error = %chain(&error), "failed to save stream cursors; clients will read streams from the start");
        }
    }
}

/// The keys of workers; without tokens workers need none.
pub(crate) async fn worker_keys(
    server: &ListeningServer,
    documents: Option<&dyn Documents>,
) -> anyhow::Result<Option<WorkerKeys>> {
    Ok(match &server.tokens {
        Some(_) => {
            let secret = persistent_secret(documents, WORKER_SECRET).await?;
            Some(WorkerKeys::new(&secret))
        }
        None => None,
    })
}

fn factory(args: &EndpointArgs, models: &ModelRegistry) -> EndpointFactory {
    let config = tidegate_remote::Config {
        ping_timeout: args.worker_timeout,
        ..tidegate_remote::Config::default()
    };
    let (opening, closing) = (models.clone(), models.clone());
    EndpointFactory {
        open: Box::new(move |name| open_endpoint(&opening, name, config)),
        close: Box::new(move |endpoint| closing.withdraw_endpoint(&endpoint.jobs.target().model)),
    }
}

fn open_endpoint(models: &ModelRegistry, name: &str, config: tidegate_remote::Config) -> Endpoint {
    let remote = RemoteExecutor::new(config);
    let jobs = models.lookup().for_endpoint(
        Arc::new(remote.clone()),
        Target::of_endpoint(name),
        OnLost::Retry { attempts: ATTEMPTS },
    );
    models.offer_endpoint(jobs.clone());
    Endpoint {
        name: name.to_owned(),
        jobs,
        remote,
    }
}
