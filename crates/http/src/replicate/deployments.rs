//! Deployments: a caller's own name for one version of a model, with numbered releases. Those of the past are kept:
//! a prediction tells the number of the release that it came through.
//!
//! A deployment starts nothing here. Its predictions stand in the one line of its model; the hardware and the
//! instances that it asks for are written down and shown.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_core::Account;
use tidegate_core::record::DeploymentRef;
use tidegate_service::JobService;

use super::documents::{DocumentCollection, MAX_THINGS, is_name, prefix_of};
use super::extract::{CreateRequest, JsonBody};
use super::origin::Origin;
use super::paging::{SortKey, page};
use super::predictions::RequestedJob;
use super::render::moment;
use super::reply::{self, ApiError};
use super::trained_versions::parts;
use super::wire::{self, Deploy, InvalidField};
use super::{AppState, account, catalog};
use crate::access::Identity;

/// More than any platform has.
const MAX_INSTANCES: u32 = 1000;
/// How many releases of the past are kept; the oldest are forgotten.
const MAX_PAST: usize = 1000;

/// A deployment as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct DeploymentRecord {
    name: String,
    created_at: Timestamp,
    #[serde(flatten)]
    current: ReleaseRecord,
    /// What it was before, oldest first.
    #[serde(default)]
    past: Vec<ReleaseRecord>,
}

/// What a deployment is, or was, from one change to the next. Only its owner changes it, so that nobody else can
/// have made one.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ReleaseRecord {
    number: u64,
    released_at: Timestamp,
    #[serde(rename = "release")]
    setup: ReleaseConfig,
}

/// What makes a new release when it changes.
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
    let all: Vec<DeploymentRecord> = state.deployments().all(&prefix_of(&caller.account)).await?;
    let mark = |one: &DeploymentRecord| SortKey {
        at: one.created_at,
        name: one.name.clone(),
    };
    let page = page(
        all,
        mark,
        query.as_deref().unwrap_or_default(),
        origin.url(&["v1", "deployments"]),
    );
    Ok(reply::ok(&page.each(|one| one.written(&caller.account))))
}

/// `POST /v1/deployments`
pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    JsonBody(deploy): JsonBody<Deploy>,
) -> Result<Response, ApiError> {
    let (name, setup) = whole(deploy)?;
    state.check_setup(&caller, &setup).await?;
    if state
        .deployments()
        .all::<DeploymentRecord>(&prefix_of(&caller.account))
        .await?
        .len()
        >= MAX_THINGS
    {
        return Err(ApiError::Conflict(format!(
            "You have {MAX_THINGS} deployments; delete one first."
        )));
    }
    let now = Timestamp::now();
    let current = ReleaseRecord {
        number: 1,
        released_at: now,
        setup,
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
            "You have a deployment called `{}` already.",
            deployment.name
        )));
    }
    Ok(reply::created(&deployment.written(&caller.account)))
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
            .written(&caller.account),
    ))
}

/// `GET /v1/deployments/{owner}/{name}/releases`: all that are kept, newest first.
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
    // Clocks may go back, numbers do not.
    let mark = |release: &ReleaseRecord| SortKey {
        at: Timestamp::UNIX_EPOCH,
        name: format!("{:020}", release.number),
    };
    let address = origin.url(&["v1", "deployments", &owner, &name, "releases"]);
    let page = page(past, mark, query.as_deref().unwrap_or_default(), address);
    Ok(reply::ok(
        &page.each(|release| release.written(&caller.account)),
    ))
}

/// `PATCH /v1/deployments/{owner}/{name}`: what is not said stays. A change makes a new release.
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
        .setup;
    if before.with(&deploy) != before {
        state.check_setup(&caller, &before.with(&deploy)).await?;
    }
    // Two who change it at once may make something that neither has asked for; its predictions are refused then.
    let change = |deployment: &mut DeploymentRecord| {
        let setup = deployment.current.setup.with(&deploy);
        if setup != deployment.current.setup {
            setup.check_instances()?;
            deployment.release(setup);
        }
        Ok(())
    };
    let changed = state
        .deployments()
        .change(&key(&caller.account, &name), change)
        .await?;
    Ok(reply::ok(&changed.ok_or(UNKNOWN)?.written(&caller.account)))
}

/// `DELETE /v1/deployments/{owner}/{name}`; not while its predictions wait or run.
pub(super) async fn remove(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    state.deployment(&caller, &owner, &name).await?;
    // Also predictions of releases before, which may be for another model.
    if state
        .models
        .lookup()
        .is_in_use(&caller.account, &format!("{owner}/{name}"))
    {
        return Err(ApiError::Conflict(
            "The deployment has predictions that are not over; cancel them or wait.".to_owned(),
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
    order: CreateRequest,
) -> Result<Response, ApiError> {
    let DeploymentRecord { current, .. } = state.deployment(&order.caller, &owner, &name).await?;
    // The model may have changed since, or not be served any more.
    let desk = state.check_setup(&order.caller, &current.setup).await?;
    let deployment = Some(DeploymentRef {
        deployment: format!("{owner}/{name}"),
        release: Some(current.number),
    });
    state
        .submit(
            &order,
            &order.read()?,
            RequestedJob {
                deployment,
                ..RequestedJob::prediction(desk)
            },
        )
        .await
}

const UNKNOWN: ApiError = ApiError::Unknown("deployment");

impl AppState {
    fn deployments(&self) -> DocumentCollection<'_> {
        DocumentCollection {
            documents: &*self.config.documents,
            name: "deployments",
        }
    }

    async fn deployment(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<DeploymentRecord, ApiError> {
        is_callers(caller, owner)?;
        self.deployments()
            .get(&key(&caller.account, name))
            .await?
            .ok_or(UNKNOWN)
    }

    /// The desk of what is to be run. Refuses what is not here.
    async fn check_setup(
        &self,
        caller: &Identity,
        setup: &ReleaseConfig,
    ) -> Result<JobService, ApiError> {
        let (owner, name) = parts(&setup.model);
        match self.check_known(caller, owner, name).await {
            Err(ApiError::Unknown(_)) => {
                return Err(invalid(
                    "model",
                    &format!("there is no model `{}`", setup.model),
                ));
            }
            known => known?,
        }
        let desk = self
            .service_for(caller, (owner, name), Some(&setup.version))
            .await?
            .ok_or(ApiError::UnknownVersion)?;
        let skus = catalog::HARDWARE.map(|hardware| hardware.sku);
        if !skus.contains(&setup.hardware.as_str()) {
            return Err(ApiError::Fields(vec![InvalidField::choice(
                "hardware", &skus,
            )]));
        }
        setup.check_instances()?;
        Ok(desk)
    }
}

impl DeploymentRecord {
    /// Makes the next release.
    fn release(&mut self, setup: ReleaseConfig) {
        let next = ReleaseRecord {
            number: self.current.number + 1,
            released_at: Timestamp::now(),
            setup,
        };
        self.past.push(std::mem::replace(&mut self.current, next));
        let forgotten = self.past.len().saturating_sub(MAX_PAST);
        self.past.drain(..forgotten);
    }

    fn written<'a>(&'a self, owner: &'a Account) -> wire::Deployment<'a> {
        wire::Deployment {
            owner: owner.as_str(),
            name: &self.name,
            current_release: self.current.written(owner),
        }
    }
}

impl ReleaseRecord {
    fn written<'a>(&'a self, owner: &'a Account) -> wire::Release<'a> {
        let setup = &self.setup;
        wire::Release {
            number: self.number,
            model: &setup.model,
            version: &setup.version,
            created_at: moment(self.released_at),
            created_by: account::written(owner),
            configuration: wire::Configuration {
                hardware: &setup.hardware,
                min_instances: setup.min_instances,
                max_instances: setup.max_instances,
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

    /// As it is with these changes.
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

/// A new deployment must say everything.
fn whole(deploy: Deploy) -> Result<(String, ReleaseConfig), ApiError> {
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
    if !is_name(name) {
        return Err(ApiError::Fields(vec![InvalidField::name()]));
    }
    let setup = ReleaseConfig {
        model: model.clone(),
        version: version.clone(),
        hardware: hardware.clone(),
        min_instances,
        max_instances,
    };
    Ok((name.clone(), setup))
}

fn missing(deploy: &Deploy) -> Vec<InvalidField> {
    let said = [
        ("name", deploy.name.is_some()),
        ("model", deploy.model.is_some()),
        ("version", deploy.version.is_some()),
        ("hardware", deploy.hardware.is_some()),
        ("min_instances", deploy.min_instances.is_some()),
        ("max_instances", deploy.max_instances.is_some()),
    ];
    InvalidField::missing(&said)
}

fn invalid(field: &str, description: &str) -> ApiError {
    ApiError::Fields(vec![InvalidField::invalid(field, description)])
}

/// Everybody has their own; those of others are not spoken of.
fn is_callers(caller: &Identity, owner: &str) -> Result<(), ApiError> {
    if caller.account.as_str() == owner {
        Ok(())
    } else {
        Err(UNKNOWN)
    }
}

fn key(account: &Account, name: &str) -> String {
    format!("{}{name}", prefix_of(account))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_releases_are_forgotten_and_numbers_go_on() {
        let setup = |max_instances| ReleaseConfig {
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
            setup: setup(1),
        };
        let mut deployment = DeploymentRecord {
            name: "app".to_owned(),
            created_at: at,
            current,
            past: Vec::new(),
        };
        for n in 0..MAX_PAST + 5 {
            deployment.release(setup(n as u32));
        }
        assert_eq!(
            (deployment.current.number, deployment.past.len()),
            (1006, MAX_PAST)
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
    fn one_that_was_kept_without_its_past_is_read() {
        let kept = r#"{"name":"app","created_at":"2026-01-01T00:00:00Z","number":3,"released_at":"2026-01-02T00:00:00Z",
            "release":{"model":"a/b","version":"0","hardware":"local","min_instances":0,"max_instances":1}}"#;
        let deployment: DeploymentRecord = serde_json::from_str(kept).unwrap();
        assert_eq!((deployment.current.number, deployment.past.len()), (3, 0));
        let again: DeploymentRecord =
            serde_json::from_str(&serde_json::to_string(&deployment).unwrap()).unwrap();
        assert_eq!(again.current.setup, deployment.current.setup);
    }
}
