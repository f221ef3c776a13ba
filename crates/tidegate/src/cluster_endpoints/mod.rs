//! The endpoints of a cluster: each is owned by one API process, by a claim in the database that the owner renews.
//! An endpoint without a live owner is taken over by any process.
//!
//! The claim lasts a bit less than `--lease`, so that a takeover is complete within one. All processes take part;
//! requests for endpoints of others are forwarded (`tidegate_http::runpod::platform::cluster`).

mod advertise;
mod owned;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use futures_util::future::join_all;
use tidegate_core::chain;
use tidegate_core::store::{Documents, StoreError};
use tidegate_http::runpod::platform::cluster::{
    ClusterConfig, EndpointDirectory, EndpointPlace, EndpointPlaces, RemoteOwner, cluster_routes,
};
use tidegate_http::runpod::platform::{OpenEndpointError, register_endpoint, registered_endpoints};
use tidegate_http::ui::ListedEndpoint;
use tidegate_net::{Forwarder, Url};
use tidegate_service::{JobService, ModelRegistry};
use tidegate_store::{EndpointOwner, OwnerClaim, PostgresStore};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::cli::ApiArgs;
use crate::endpoint_setup::worker_keys;
use crate::startup::ListeningServer;
use crate::usage_error::UsageError;
use advertise::advertised_url;
use owned::{Leaving, OwnedConfig, OwnedEndpoint};

/// A claim is renewed this many times per lease.
const ROUNDS_PER_LEASE: u32 = 6;
/// The shortest pause between two rounds, also when requests ask for one.
const MIN_PAUSE: Duration = Duration::from_millis(100);

/// The endpoints of a cluster, as one of its API processes sees them.
pub(crate) struct ClusterEndpoints {
    config: Arc<OwnedConfig>,
    directory: EndpointDirectory,
    /// What this process claims endpoints with; `None` if others cannot reach it.
    claim: Option<OwnerClaim>,
    interval: Duration,
    owned: Mutex<BTreeMap<String, Ownership>>,
    /// Endpoints that are being taken over.
    tasks: TaskTracker,
    /// The warning that this process owns no endpoints.
    warning: Once,
}

/// An endpoint that is claimed by this process.
#[derive(Clone)]
enum Ownership {
    /// Its jobs are being read, for this term.
    Opening(u64),
    Open(Arc<OwnedEndpoint>),
}

impl ClusterEndpoints {
    /// Registers the endpoints of the command line. No endpoint is owned yet.
    pub(crate) async fn open(
        args: &ApiArgs,
        server: &ListeningServer,
        store: &Arc<PostgresStore>,
        models: &ModelRegistry,
    ) -> anyhow::Result<Self> {
        let names = &args.endpoint.endpoints;
        let url = advertised_url(args.advertise.as_ref(), &server.url, names)?;
        for name in names {
            let registered = register_endpoint(&**store, name).await;
            registered.map_err(|error| match error {
                OpenEndpointError::Name(error) => {
                    UsageError::new(format!("--endpoint `{name}`: {error}")).into()
                }
                OpenEndpointError::Store(_) => anyhow::Error::new(error),
            })?;
        }
        let interval = args.cluster.lease / ROUNDS_PER_LEASE;
        let claim = url.map(|url| OwnerClaim {
            holder: holder(&url),
            url: url.to_string(),
            // Two rounds before the end of the lease, so that another process has taken over by then.
            lasts: interval * (ROUNDS_PER_LEASE - 2),
        });
        let endpoints = Self {
            config: Arc::new(OwnedConfig {
                store: Arc::clone(store),
                lookup: models.lookup().clone(),
                args: args.endpoint.clone(),
                worker_keys: worker_keys(server, Some(&**store)).await?,
                base_url: server.base_url(args.public_url.as_ref()),
                max_body: args.max_body,
            }),
            directory: EndpointDirectory::default(),
            claim,
            interval,
            owned: Mutex::default(),
            tasks: TaskTracker::new(),
            warning: Once::new(),
        };
        endpoints.learn_owners().await?;
        Ok(endpoints)
    }

    /// Reads where the endpoints are, so that the first requests find them. No endpoint is claimed.
    async fn learn_owners(&self) -> Result<(), StoreError> {
        let store = &self.config.store;
        let names = registered_endpoints(&**store).await?;
        if names.is_empty() {
            return Ok(());
        }
        let asked_at = Instant::now();
        let owners = store.endpoint_owners(&names).await?;
        self.publish(&names, &owners, asked_at);
        Ok(())
    }

    /// The routes of all endpoints of the cluster.
    pub(crate) fn routes(&self, args: &ApiArgs) -> anyhow::Result<Router> {
        Ok(cluster_routes(ClusterConfig {
            directory: self.directory.clone(),
            documents: self.config.store.clone() as Arc<dyn Documents>,
            worker_keys: self.config.worker_keys.clone(),
            base_url: self.config.base_url.clone(),
            body_timeout: args.body_timeout,
            forwarder: Forwarder::new().context("failed to create an HTTP client")?,
        }))
    }

    /// The job services of the endpoints that this process owns.
    pub(crate) fn services(&self) -> Vec<JobService> {
        let open = self.open_endpoints();
        open.iter()
            .flat_map(|endpoint| endpoint.models.services())
            .collect()
    }

    /// All endpoints of the cluster, for the web UI; only those that this process owns have their jobs here.
    pub(crate) fn listed(&self) -> Vec<ListedEndpoint> {
        let open = self.open_endpoints();
        let owned = |name: &str| open.iter().find_map(|endpoint| endpoint.endpoint(name));
        let names = self.directory.names().into_iter();
        names
            .map(|name| ListedEndpoint {
                endpoint: owned(&name),
                name,
            })
            .collect()
    }

    /// Keeps the claims of this process, takes over endpoints without an owner, and learns the owners of the
    /// others, forever.
    pub(crate) async fn run(self: &Arc<Self>) {
        loop {
            if let Err(error) = self.round().await {
                tracing::warn!(error = %chain(&error), "failed to renew the claims of endpoints, retrying");
            }
            tokio::time::sleep(MIN_PAUSE).await;
            tokio::select! {
                () = tokio::time::sleep(self.interval) => {}
                () = self.directory.refresh_requested() => {}
            }
        }
    }

    async fn round(self: &Arc<Self>) -> Result<(), StoreError> {
        let store = &self.config.store;
        let names = registered_endpoints(&**store).await?;
        let asked_at = Instant::now();
        let owners = match &self.claim {
            _ if names.is_empty() => Vec::new(),
            Some(claim) => store.claim_endpoints(&names, claim).await?,
            None => {
                self.warning.call_once(|| tracing::warn!("this process owns no endpoints, because others cannot reach it; give its address with --advertise"));
                store.endpoint_owners(&names).await?
            }
        };
        self.apply(&owners, asked_at);
        self.publish(&names, &owners, asked_at);
        Ok(())
    }

    /// Takes over the endpoints that this process owns now, and gives up those that it does not.
    fn apply(self: &Arc<Self>, owners: &[EndpointOwner], asked_at: Instant) {
        let mine: BTreeMap<&str, u64> = owners
            .iter()
            .filter(|owner| self.is_mine(owner))
            .map(|owner| (owner.endpoint.as_str(), owner.term))
            .collect();
        let valid_until = asked_at + self.lasts();
        let mut left = Vec::new();
        self.with_owned(|owned| {
            owned.retain(|name, ownership| match ownership {
                Ownership::Opening(term) => mine.get(name.as_str()) == Some(term),
                Ownership::Open(endpoint) => {
                    let is_mine = mine.get(name.as_str()) == Some(&endpoint.term);
                    if is_mine && !endpoint.is_over() {
                        endpoint.routes.extend(valid_until);
                        return true;
                    }
                    let is_removed = owners.iter().all(|owner| owner.endpoint != *name);
                    let by = if is_removed {
                        Leaving::Released
                    } else {
                        Leaving::Lost
                    };
                    left.push((Arc::clone(endpoint), by));
                    false
                }
            });
        });
        for (endpoint, by) in left {
            self.tasks.spawn(async move { endpoint.leave(by).await });
        }
        for (name, term) in mine {
            self.take_over(name, term, valid_until);
        }
    }

    /// Reads the jobs of an endpoint that this process has just claimed, in the background: other claims must
    /// be renewed meanwhile.
    fn take_over(self: &Arc<Self>, name: &str, term: u64, valid_until: Instant) {
        let is_new = self.with_owned(|owned| {
            let is_new = !owned.contains_key(name);
            if is_new {
                owned.insert(name.to_owned(), Ownership::Opening(term));
            }
            is_new
        });
        if !is_new {
            return;
        }
        let (this, name) = (Arc::clone(self), name.to_owned());
        self.tasks.spawn(async move {
            let opened = OwnedEndpoint::open(&this.config, &name, term, valid_until).await;
            let opened = opened.map(Arc::new);
            if let Err(error) = &opened {
                tracing::error!(endpoint = name, error = format!("{error:#}"), "failed to take over the endpoint, retrying");
            }
            let unused = this.with_owned(|owned| {
                let is_expected = matches!(owned.get(&name), Some(Ownership::Opening(opening)) if *opening == term);
                match opened {
                    Ok(endpoint) if is_expected => {
                        owned.insert(name.clone(), Ownership::Open(endpoint));
                        None
                    }
                    Ok(endpoint) => Some(endpoint),
                    Err(_) => {
                        if is_expected {
                            owned.remove(&name);
                        }
                        None
                    }
                }
            });
            match unused {
                Some(endpoint) => endpoint.leave(Leaving::Lost).await,
                // The next round serves it.
                None => this.directory.refresh(),
            }
        });
    }

    /// Tells the routes where the endpoints are.
    fn publish(&self, names: &[String], owners: &[EndpointOwner], asked_at: Instant) {
        let owned = self.with_owned(|owned| owned.clone());
        let owners: BTreeMap<&str, &EndpointOwner> = owners
            .iter()
            .map(|owner| (owner.endpoint.as_str(), owner))
            .collect();
        let place = |name: &str| match (owned.get(name), owners.get(name)) {
            (Some(Ownership::Open(endpoint)), _) => {
                EndpointPlace::Here(Arc::clone(&endpoint.routes))
            }
            (None, Some(owner)) if !owner.remaining.is_zero() && !self.is_mine(owner) => {
                match Url::parse(&owner.url) {
                    Ok(url) => EndpointPlace::There(RemoteOwner {
                        url,
                        term: owner.term,
                        expires_at: asked_at + owner.remaining,
                    }),
                    Err(_) => EndpointPlace::Nowhere,
                }
            }
            (Some(Ownership::Opening(_)), _) | (None, _) => EndpointPlace::Nowhere,
        };
        let places: EndpointPlaces = names
            .iter()
            .map(|name| (name.clone(), place(name)))
            .collect();
        self.directory.update(places);
    }

    /// Gives up all endpoints, so that other processes take them over at once.
    pub(crate) async fn release(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        let open = self.open_endpoints();
        self.with_owned(BTreeMap::clear);
        join_all(
            open.iter()
                .map(|endpoint| endpoint.leave(Leaving::Released)),
        )
        .await;
    }

    fn is_mine(&self, owner: &EndpointOwner) -> bool {
        let claim = self.claim.as_ref();
        claim.is_some_and(|claim| claim.holder == owner.holder)
    }

    fn lasts(&self) -> Duration {
        self.claim
            .as_ref()
            .map(|claim| claim.lasts)
            .unwrap_or_default()
    }

    fn open_endpoints(&self) -> Vec<Arc<OwnedEndpoint>> {
        self.with_owned(|owned| {
            let open = owned.values().filter_map(|ownership| match ownership {
                Ownership::Open(endpoint) => Some(Arc::clone(endpoint)),
                Ownership::Opening(_) => None,
            });
            open.collect()
        })
    }

    fn with_owned<R>(&self, f: impl FnOnce(&mut BTreeMap<String, Ownership>) -> R) -> R {
        f(&mut self.owned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A name of this process that no other one has.
fn holder(url: &Url) -> String {
    let mut random = [0; 8];
    getrandom::fill(&mut random).expect("the system provides random bytes");
    format!(
        "{}#{:016x}",
        tidegate_net::host_of(url),
        u64::from_ne_bytes(random)
    )
}
