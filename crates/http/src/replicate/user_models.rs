//! Models that users create over the API. Their versions come from trainings.
//!
//! All accounts and the models from folders share one set of names. The account that created a
//! model may change and remove it; others see it if it is public.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_core::Account;

use super::documents::{DocumentCollection, MAX_PER_ACCOUNT, is_valid_name};
use super::extract::JsonBody;
use super::models::VersionView;
use super::origin::Origin;
use super::paging::{SortKey, has_cursor, page};
use super::reply::{self, ApiError};
use super::wire::{self, Describe, InvalidField};
use super::{AppState, catalog};
use crate::access::{Identity, Role};

/// A model as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UserModel {
    owner: String,
    name: String,
    /// The account that created it; empty for the anonymous account.
    account: String,
    created_at: Timestamp,
    visibility: Visibility,
    hardware: String,
    #[serde(flatten)]
    description: ModelDescription,
    readme: Option<String>,
}

/// A model with its latest trained version, for rendering.
pub(super) struct UserModelView {
    model: UserModel,
    latest: Option<VersionView>,
}

/// The texts and links of a model.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ModelDescription {
    description: Option<String>,
    github_url: Option<String>,
    paper_url: Option<String>,
    license_url: Option<String>,
    cover_image_url: Option<String>,
    weights_url: Option<String>,
}

/// Which accounts see a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Visibility {
    Public,
    Private,
}

/// `POST /v1/models`
pub(super) async fn create(
    State(state): State<Arc<AppState>>,
    caller: Identity,
    origin: Origin,
    JsonBody(describe): JsonBody<Describe>,
) -> Result<Response, ApiError> {
    let model = state.new_user_model(describe, &caller)?;
    if state
        .all_user_models(&caller)
        .await?
        .iter()
        .filter(|view| view.model.is_owned_by(&caller.account))
        .count()
        >= MAX_PER_ACCOUNT
    {
        return Err(ApiError::Conflict(format!(
            "You have {MAX_PER_ACCOUNT} models; delete one first."
        )));
    }
    let exists = state.job_service(&model.owner, &model.name).is_some()
        || !state
            .user_model_documents()
            .add(&model.key(), &model)
            .await?;
    if exists {
        return Err(ApiError::Conflict(format!(
            "A model named `{}` already exists.",
            model.key()
        )));
    }
    state.models.refresh_trained_models().await?;
    // Another account may have trained for a model of the same name that was removed during the
    // training.
    for trained in state
        .models
        .trained_models_of(&model.key())
        .iter()
        .filter(|trained| !trained.version.is_owned_by(&caller.account))
    {
        state.models.remove_trained_model(trained).await?;
    }
    Ok(reply::created(&state.view_of(model).render(&origin)?))
}

/// `PATCH /v1/models/{owner}/{name}`. Absent fields keep their value.
pub(super) async fn update(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
    origin: Origin,
    JsonBody(describe): JsonBody<Describe>,
) -> Result<Response, ApiError> {
    let key = state.own_user_model(&caller, &owner, &name).await?.key();
    let change = |model: &mut UserModel| {
        model.describe(&describe);
        Ok(())
    };
    let changed = state
        .user_model_documents()
        .change(&key, change)
        .await?
        .ok_or(UNKNOWN)?;
    Ok(reply::ok(&state.view_of(changed).render(&origin)?))
}

/// `DELETE /v1/models/{owner}/{name}`, with its trained versions.
pub(super) async fn remove(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    let model = state.own_user_model(&caller, &owner, &name).await?;
    state.models.refresh_trained_models().await?;
    for trained in state.models.trained_models_of(&model.key()) {
        state.models.remove_trained_model(&trained).await?;
    }
    match state.user_model_documents().remove(&model.key()).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(UNKNOWN),
    }
}

const UNKNOWN: ApiError = ApiError::Unknown("model");

impl AppState {
    fn user_model_documents(&self) -> DocumentCollection<'_> {
        DocumentCollection {
            documents: &*self.config.documents,
            namespace: "models",
        }
    }

    /// A model that the caller may see.
    pub(super) async fn user_model(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<UserModel, ApiError> {
        let model: Option<UserModel> = self
            .user_model_documents()
            .get(&format!("{owner}/{name}"))
            .await?;
        model
            .filter(|model| model.is_visible_to(&caller.account))
            .ok_or(UNKNOWN)
    }

    /// A model that the caller may change.
    async fn own_user_model(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<UserModel, ApiError> {
        if self.job_service(owner, name).is_some() {
            return Err(ApiError::ServedFromFolder);
        }
        let model = self.user_model(caller, owner, name).await?;
        if model.is_owned_by(&caller.account) {
            Ok(model)
        } else {
            Err(ApiError::NotModelOwner(owner.to_owned()))
        }
    }

    /// Whether the caller may train versions of this model.
    pub(super) async fn is_destination(
        &self,
        caller: &Identity,
        model: &str,
    ) -> Result<bool, ApiError> {
        let Some((owner, name)) = model.split_once('/') else {
            return Ok(false);
        };
        if self.job_service(owner, name).is_some() {
            return Ok(true);
        }
        match self.user_model(caller, owner, name).await {
            Ok(model) => Ok(model.is_owned_by(&caller.account)),
            Err(ApiError::Unknown(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All models that the caller may see.
    pub(super) async fn all_user_models(
        &self,
        caller: &Identity,
    ) -> Result<Vec<UserModelView>, ApiError> {
        self.models.refresh_trained_models().await?;
        let mut user_models: Vec<UserModel> = self.user_model_documents().all("").await?;
        user_models.retain(|model| model.is_visible_to(&caller.account));
        Ok(user_models
            .into_iter()
            .map(|model| self.view_of(model))
            .collect())
    }

    /// A model with its latest version.
    pub(super) fn view_of(&self, model: UserModel) -> UserModelView {
        UserModelView {
            latest: self.latest_trained(&model.key()).map(VersionView::new),
            model,
        }
    }

    /// Checks a request for a new model.
    fn new_user_model(&self, describe: Describe, caller: &Identity) -> Result<UserModel, ApiError> {
        let Describe {
            owner: Some(owner),
            name: Some(name),
            visibility: Some(visibility),
            hardware: Some(hardware),
            ..
        } = &describe
        else {
            return Err(ApiError::Fields(missing(&describe)));
        };
        if !is_valid_name(name) {
            return Err(ApiError::Fields(vec![InvalidField::name()]));
        }
        let visibility = match visibility.as_str() {
            "public" => Visibility::Public,
            "private" => Visibility::Private,
            _ => {
                return Err(ApiError::Fields(vec![InvalidField::choice(
                    "visibility",
                    &["public", "private"],
                )]));
            }
        };
        let skus = catalog::HARDWARE.map(|hardware| hardware.sku);
        if !skus.contains(&hardware.as_str()) {
            return Err(ApiError::Fields(vec![InvalidField::choice(
                "hardware", &skus,
            )]));
        }
        // An administrator may also create models under the owners of the models from folders.
        let may_create = owner == caller.account.as_str()
            || (caller.role == Role::Admin && self.serves_models_of(owner));
        if !may_create {
            return Err(ApiError::NotModelOwner(owner.clone()));
        }
        let mut model = UserModel {
            owner: owner.clone(),
            name: name.clone(),
            account: account_name(&caller.account).to_owned(),
            created_at: Timestamp::now(),
            visibility,
            hardware: hardware.clone(),
            description: ModelDescription::default(),
            readme: None,
        };
        model.describe(&describe);
        Ok(model)
    }

    fn serves_models_of(&self, owner: &str) -> bool {
        self.models.all().iter().any(|model| {
            model
                .name()
                .split_once('/')
                .is_some_and(|(served, _)| served == owner)
        })
    }
}

impl UserModel {
    fn key(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    fn is_owned_by(&self, account: &Account) -> bool {
        self.account == account_name(account)
    }

    fn is_visible_to(&self, account: &Account) -> bool {
        self.visibility == Visibility::Public || self.is_owned_by(account)
    }

    fn describe(&mut self, describe: &Describe) {
        let description = &mut self.description;
        for (field, given) in [
            (&mut description.description, &describe.description),
            (&mut description.github_url, &describe.github_url),
            (&mut description.paper_url, &describe.paper_url),
            (&mut description.license_url, &describe.license_url),
            (&mut description.cover_image_url, &describe.cover_image_url),
            (&mut description.weights_url, &describe.weights_url),
            (&mut self.readme, &describe.readme),
        ] {
            if given.is_some() {
                field.clone_from(given);
            }
        }
    }

    pub(super) fn readme(&self) -> Option<&str> {
        self.readme.as_deref()
    }
}

impl UserModelView {
    pub(super) fn render(&self, origin: &Origin) -> Result<wire::Model<'_>, ApiError> {
        let UserModel {
            owner,
            name,
            visibility,
            description,
            ..
        } = &self.model;
        Ok(wire::Model {
            url: origin.to(&["v1", "models", owner, name]),
            owner,
            name,
            description: description.description.as_deref(),
            visibility: match visibility {
                Visibility::Public => "public",
                Visibility::Private => "private",
            },
            github_url: description.github_url.as_deref(),
            paper_url: description.paper_url.as_deref(),
            license_url: description.license_url.as_deref(),
            run_count: 0,
            cover_image_url: description.cover_image_url.as_deref(),
            default_example: None,
            latest_version: match &self.latest {
                Some(latest) => latest.version_if_loaded()?,
                None => None,
            },
        })
    }
}

/// A page of models: those from folders come first, on the first page.
pub(super) fn page_of_models<'a>(
    served: Vec<wire::Model<'a>>,
    user_models: &'a [UserModelView],
    query: &str,
    origin: &Origin,
) -> Result<wire::Page<wire::Model<'a>>, ApiError> {
    let sort_key = |view: &&UserModelView| SortKey {
        at: view.model.created_at,
        name: view.model.key(),
    };
    let wire::Page {
        next,
        previous,
        results,
    } = page(
        user_models.iter().collect(),
        sort_key,
        query,
        origin.url(&["v1", "models"]),
    );
    let first = if has_cursor(query) {
        Vec::new()
    } else {
        served
    };
    let made = results.into_iter().map(|view| view.render(origin));
    let results = first
        .into_iter()
        .map(Ok)
        .chain(made)
        .collect::<Result<_, _>>()?;
    Ok(wire::Page {
        next,
        previous,
        results,
    })
}

fn missing(describe: &Describe) -> Vec<InvalidField> {
    let given = [
        ("owner", describe.owner.is_some()),
        ("name", describe.name.is_some()),
        ("visibility", describe.visibility.is_some()),
        ("hardware", describe.hardware.is_some()),
    ];
    InvalidField::missing(&given)
}

/// The stored name of an account. The anonymous account is empty, which no other account can be.
fn account_name(account: &Account) -> &str {
    if account.is_anonymous() {
        ""
    } else {
        account.as_str()
    }
}
