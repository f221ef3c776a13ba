//! Deployments: a user's name for one version of a model, with numbered releases. Past releases are
//! kept, because a prediction shows the number of its release.
//!
//! A deployment starts no processes. Its predictions wait in the queue of the model, or in a cluster in a
//! queue of their own; hardware and instances are stored and returned only.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_core::Account;
use tidegate_core::record::DeploymentRef;
use tidegate_service::JobService;

use super::documents::{DocumentCollection, MAX_PER_ACCOUNT, is_valid_name, key_prefix};
use super::extract::{CreateJobRequest, JsonBody};
use super::origin::Origin;
use super::paging::{SortKey, page};
use super::predictions::RequestedJob;
use super::render::timestamp;
use super::reply::{self, ApiError};
use super::trained_versions::split_model_name;
use super::wire::{self, Deploy, InvalidField};
use super::{AppState, account, catalog};
use crate::access::Identity;

/// The most instances of a deployment.
const MAX_INSTANCES: u32 = 1000;
/// How many past releases are kept; older ones are dropped.
const MAX_PAST_RELEASES: usize = 1000;

/// A deployment as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct DeploymentRecord {
    name: String,
    created_at: Timestamp,
    #[serde(flatten)]
    current: ReleaseRecord,
    /// Past releases, oldest first.
    #[serde(default)]
    past: Vec<ReleaseRecord>,
}

/// A release of a deployment. Its creator is the owner of the deployment, because only the owner
/// can change it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ReleaseRecord {
    number: u64,
    released_at: Timestamp,
    #[serde(rename = "release")]
    config: ReleaseConfig,
}

/// The configuration of a release. A change makes a new release.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ReleaseConfig {
    model: String,
    version: String,
    hardware: String,
    min_instances: u32,
    max_instances: u32,
}

/// `GET /v1/deployments`, newest first.
pub(super) async fn list(
    State(state): State<Arc<AppState>>,
    RawQuery(query): RawQuery,
    caller: Identity,
    origin: Origin,
) -> Result<Response, ApiError> {
    let all: Vec<DeploymentRecord> = state
        .deployments()
        .all(&key_prefix(&caller.account))
        .await?;
    let sort_key = |deployment: &DeploymentRecord| SortKey {
        at: deployment.created_at,
        name: deployment.name.clone(),
    };
    let page = page(
        all,
        sort_key,
        query.as_deref().unwrap_or_default(),
        origin.url(&["v1", "deployments"]),
    );
    Ok(reply::ok(
        &page.each(|deployment| deployment.render(&caller.account)),
    ))
}

/// `POST /v1/deployments`
pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    JsonBody(deploy): JsonBody<Deploy>,
) -> Result<Response, ApiError> {
    let (name, config) = complete_config(deploy)?;
    let service = state.check_config(&caller, &config).await?;
    if state
        .deployments()
        .all::<DeploymentRecord>(&key_prefix(&caller.account))
        .await?
        .len()
        >= MAX_PER_ACCOUNT
    {
        return Err(ApiError::Conflict(format!(
            "You have {MAX_PER_ACCOUNT} deployments; delete one first."
        )));
    }
    let now = Timestamp::now();
    let current = ReleaseRecord {
        number: 1,
        released_at: now,
        config,
    };
    let deployment = DeploymentRecord {
        name,
        created_at: now,
        current,
        past: Vec::new(),
    };
    if !state
        .deployments()
        .add(&key(&caller.account, &deployment.name), &deployment)
        .await?
    {
        return Err(ApiError::Conflict(format!(
            "You already have a deployment named `{}`.",
            deployment.name
        )));
    }
    service
        .prepare_deployment(deployment.reference(&caller.account))
        .await;
    Ok(reply::created(&deployment.render(&caller.account)))
}

/// `GET /v1/deployments/{owner}/{name}`
pub(super) async fn show(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    Ok(reply::ok(
        &state
            .deployment(&caller, &owner, &name)
            .await?
            .render(&caller.account),
    ))
}

/// `GET /v1/deployments/{owner}/{name}/releases`: the releases that are kept, newest first.
pub(super) async fn releases(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    caller: Identity,
    origin: Origin,
) -> Result<Response, ApiError> {
    let DeploymentRecord {
        current, mut past, ..
    } = state.deployment(&caller, &owner, &name).await?;
    past.push(current);
    // Sorted by number, because the clock may go back.
    let sort_key = |release: &ReleaseRecord| SortKey {
        at: Timestamp::UNIX_EPOCH,
        name: format!("{:020}", release.number),
    };
    let url = origin.url(&["v1", "deployments", &owner, &name, "releases"]);
    let page = page(past, sort_key, query.as_deref().unwrap_or_default(), url);
    Ok(reply::ok(
        &page.each(|release| release.render(&caller.account)),
    ))
}

/// `PATCH /v1/deployments/{owner}/{name}`. Absent fields keep their value. A change makes a new
/// release.
pub(super) async fn update(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
    JsonBody(deploy): JsonBody<Deploy>,
) -> Result<Response, ApiError> {
    let before = state
        .deployment(&caller, &owner, &name)
        .await?
        .current
        .config;
    let mut service = None;
    if before.with(&deploy) != before {
        service = Some(state.check_config(&caller, &before.with(&deploy)).await?);
    }
    // Two concurrent changes may result in a configuration that is not valid. Its predictions are
    // refused.
    let change = |deployment: &mut DeploymentRecord| {
        let config = deployment.current.config.with(&deploy);
        if config != deployment.current.config {
            config.check_instances()?;
            deployment.release(config);
        }
        Ok(())
    };
    let changed = state
        .deployments()
        .change(&key(&caller.account, &name), change)
        .await?;
    let changed: DeploymentRecord = changed.ok_or(UNKNOWN)?;
    if let Some(service) = service {
        service
            .prepare_deployment(changed.reference(&caller.account))
            .await;
    }
    Ok(reply::ok(&changed.render(&caller.account)))
}

/// `DELETE /v1/deployments/{owner}/{name}`. Refused while it has predictions that wait or run.
pub(super) async fn remove(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    state.deployment(&caller, &owner, &name).await?;
    // This includes predictions of past releases, which may be for another model.
    if state
        .models
        .lookup()
        .is_in_use(&caller.account, &format!("{owner}/{name}"))
        .await?
    {
        return Err(ApiError::Conflict(
            "The deployment has unfinished predictions; cancel them or wait for them to end."
                .to_owned(),
        ));
    }
    match state
        .deployments()
        .remove(&key(&caller.account, &name))
        .await?
    {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(UNKNOWN),
    }
}

/// `POST /v1/deployments/{owner}/{name}/predictions`
pub(super) async fn create_prediction(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    request: CreateJobRequest,
) -> Result<Response, ApiError> {
    let DeploymentRecord { current, .. } = state.deployment(&request.caller, &owner, &name).await?;
    // The model may have changed since the release, or may not be served any more.
    let service = state.check_config(&request.caller, &current.config).await?;
    let deployment = Some(current.reference(&owner, &name));
    state
        .submit(
            &request,
            &request.read()?,
            RequestedJob {
                deployment,
                ..RequestedJob::prediction(service)
            },
        )
        .await
}

const UNKNOWN: ApiError = ApiError::Unknown("deployment");

impl AppState {
    fn deployments(&self) -> DocumentCollection<'_> {
        DocumentCollection {
            documents: &*self.config.documents,
            namespace: "deployments",
        }
    }

    async fn deployment(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<DeploymentRecord, ApiError> {
        check_owner(caller, owner)?;
        self.deployments()
            .get(&key(&caller.account, name))
            .await?
            .ok_or(UNKNOWN)
    }

    /// The job service of the release's version. Refuses a model, version or hardware that does not
    /// exist.
    async fn check_config(
        &self,
        caller: &Identity,
        config: &ReleaseConfig,
    ) -> Result<JobService, ApiError> {
        let (owner, name) = split_model_name(&config.model);
        match self.check_model_visible(caller, owner, name).await {
            Err(ApiError::Unknown(_)) => {
                return Err(invalid(
                    "model",
                    &format!("there is no model `{}`", config.model),
                ));
            }
            known => known?,
        }
        let service = self
            .service_for(caller, (owner, name), Some(&config.version))
            .await?
            .ok_or(ApiError::UnknownVersion)?;
        let skus = catalog::HARDWARE.map(|hardware| hardware.sku);
        if !skus.contains(&config.hardware.as_str()) {
            return Err(ApiError::Fields(vec![InvalidField::choice(
                "hardware", &skus,
            )]));
        }
        config.check_instances()?;
        Ok(service)
    }
}

impl DeploymentRecord {
    /// Adds the next release.
    fn release(&mut self, config: ReleaseConfig) {
        let next = ReleaseRecord {
            number: self.current.number + 1,
            released_at: Timestamp::now(),
            config,
        };
        self.past.push(std::mem::replace(&mut self.current, next));
        let excess = self.past.len().saturating_sub(MAX_PAST_RELEASES);
        self.past.drain(..excess);
    }

    /// The current release, as its predictions show it.
    fn reference(&self, owner: &Account) -> DeploymentRef {
        self.current.reference(owner.as_str(), &self.name)
    }

    fn render<'a>(&'a self, owner: &'a Account) -> wire::Deployment<'a> {
        wire::Deployment {
            owner: owner.as_str(),
            name: &self.name,
            current_release: self.current.render(owner),
        }
    }
}

impl ReleaseRecord {
    fn reference(&self, owner: &str, name: &str) -> DeploymentRef {
        DeploymentRef {
            deployment: format!("{owner}/{name}"),
            release: Some(self.number),
        }
    }

    fn render<'a>(&'a self, owner: &'a Account) -> wire::Release<'a> {
        let config = &self.config;
        wire::Release {
            number: self.number,
            model: &config.model,
            version: &config.version,
            created_at: timestamp(self.released_at),
            created_by: account::render(owner),
            configuration: wire::Configuration {
                hardware: &config.hardware,
                min_instances: config.min_instances,
                max_instances: config.max_instances,
            },
        }
    }
}

impl ReleaseConfig {
    fn check_instances(&self) -> Result<(), ApiError> {
        if self.max_instances == 0 || self.max_instances > MAX_INSTANCES {
            return Err(invalid(
                "max_instances",
                &format!("max_instances must be from 1 to {MAX_INSTANCES}"),
            ));
        }
        if self.min_instances > self.max_instances {
            return Err(invalid(
                "min_instances",
                "min_instances must not be above max_instances",
            ));
        }
        Ok(())
    }

    /// The configuration with these changes.
    fn with(&self, deploy: &Deploy) -> Self {
        let text = |new: &Option<String>, old: &String| new.as_ref().unwrap_or(old).clone();
        Self {
            model: text(&deploy.model, &self.model),
            version: text(&deploy.version, &self.version),
            hardware: text(&deploy.hardware, &self.hardware),
            min_instances: deploy.min_instances.unwrap_or(self.min_instances),
            max_instances: deploy.max_instances.unwrap_or(self.max_instances),
        }
    }
}

/// Name and configuration of a new deployment, which needs every field.
fn complete_config(deploy: Deploy) -> Result<(String, ReleaseConfig), ApiError> {
    let Deploy {
        name: Some(name),
        model: Some(model),
        version: Some(version),
        hardware: Some(hardware),
        min_instances,
        max_instances,
    } = &deploy
    else {
        return Err(ApiError::Fields(missing(&deploy)));
    };
    let (Some(min_instances), Some(max_instances)) = (*min_instances, *max_instances) else {
        return Err(ApiError::Fields(missing(&deploy)));
    };
    if !is_valid_name(name) {
        return Err(ApiError::Fields(vec![InvalidField::name()]));
    }
    let config = ReleaseConfig {
        model: model.clone(),
        version: version.clone(),
        hardware: hardware.clone(),
        min_instances,
        max_instances,
    };
    Ok((name.clone(), config))
}

fn missing(deploy: &Deploy) -> Vec<InvalidField> {
    let given = [
        ("name", deploy.name.is_some()),
        ("model", deploy.model.is_some()),
        ("version", deploy.version.is_some()),
        ("hardware", deploy.hardware.is_some()),
        ("min_instances", deploy.min_instances.is_some()),
        ("max_instances", deploy.max_instances.is_some()),
    ];
    InvalidField::missing(&given)
}

fn invalid(field: &str, description: &str) -> ApiError {
    ApiError::Fields(vec![InvalidField::invalid(field, description)])
}

/// Every account has its own deployments; those of others are unknown to it.
fn check_owner(caller: &Identity, owner: &str) -> Result<(), ApiError> {
    if caller.account.as_str() == owner {
        Ok(())
    } else {
        Err(UNKNOWN)
    }
}

fn key(account: &Account, name: &str) -> String {
    format!("{}{name}", key_prefix(account))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_releases_are_dropped_and_numbers_continue() {
        let config = |max_instances| ReleaseConfig {
            model: "ann/echo".to_owned(),
            version: "0".repeat(64),
            hardware: "local".to_owned(),
            min_instances: 0,
            max_instances,
        };
        let at = Timestamp::UNIX_EPOCH;
        let current = ReleaseRecord {
            number: 1,
            released_at: at,
            config: config(1),
        };
        let mut deployment = DeploymentRecord {
            name: "app".to_owned(),
            created_at: at,
            current,
            past: Vec::new(),
        };
        for n in 0..MAX_PAST_RELEASES + 5 {
            deployment.release(config(n as u32));
        }
        assert_eq!(
            (deployment.current.number, deployment.past.len()),
            (1006, MAX_PAST_RELEASES)
        );
        assert_eq!(
            deployment
                .past
                .iter()
                .map(|release| release.number)
                .collect::<Vec<_>>(),
            (6..=1005).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_document_without_past_releases_is_read() {
        let kept = r#"{"name":"app","created_at":"2026-01-01T00:00:00Z","number":3,"released_at":"2026-01-02T00:00:00Z",
            "release":{"model":"a/b","version":"0","hardware":"local","min_instances":0,"max_instances":1}}"#;
        let deployment: DeploymentRecord = serde_json::from_str(kept).unwrap();
        assert_eq!((deployment.current.number, deployment.past.len()), (3, 0));
        let again: DeploymentRecord =
            serde_json::from_str(&serde_json::to_string(&deployment).unwrap()).unwrap();
        assert_eq!(again.current.config, deployment.current.config);
    }
}
