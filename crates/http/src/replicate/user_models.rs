//! Models that callers make by name. They have the versions that trainings have made for them, and what a catalog can
//! say.
//!
//! Names are shared by all accounts, as those of the models that are served from folders; who has made one may
//! change and remove it, and others see it if it is public.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidegate_core::Account;

use super::documents::{DocumentCollection, MAX_THINGS, is_name};
use super::extract::JsonBody;
use super::models::VersionView;
use super::origin::Origin;
use super::paging::{SortKey, has_cursor, page};
use super::reply::{self, ApiError};
use super::wire::{self, Describe, InvalidField};
use super::{AppState, catalog};
use crate::access::{Identity, Role};

/// A model, as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct UserModel {
    owner: String,
    name: String,
    /// Who has made it; empty if that was nobody in particular.
    account: String,
    created_at: Timestamp,
    visibility: Visibility,
    hardware: String,
    #[serde(flatten)]
    about: ModelDescription,
    readme: Option<String>,
}

/// A model as it is shown, with what was trained for it last.
pub(super) struct UserModelView {
    draft: UserModel,
    latest: Option<VersionView>,
}

/// What is said about a model.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ModelDescription {
    description: Option<String>,
    github_url: Option<String>,
    paper_url: Option<String>,
    license_url: Option<String>,
    cover_image_url: Option<String>,
    weights_url: Option<String>,
}

/// Who sees a model.
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
    let draft = state.draft_of(describe, &caller)?;
    if state
        .all_drafts(&caller)
        .await?
        .iter()
        .filter(|shown| shown.draft.is_of(&caller.account))
        .count()
        >= MAX_THINGS
    {
        return Err(ApiError::Conflict(format!(
            "You have made {MAX_THINGS} models; delete one first."
        )));
    }
    let taken = state.desk(&draft.owner, &draft.name).is_some()
        || !state.drafts().add(&draft.key(), &draft).await?;
    if taken {
        return Err(ApiError::Conflict(format!(
            "There is a model called `{}` already.",
            draft.key()
        )));
    }
    // A model of the past may have been removed while somebody else trained for it.
    for trained in state
        .models
        .trained_models_of(&draft.key())
        .iter()
        .filter(|trained| !trained.kept.is_of(&caller.account))
    {
        state.models.remove_trained_model(trained).await?;
    }
    Ok(reply::created(&state.shown(draft).written(&origin)?))
}

/// `PATCH /v1/models/{owner}/{name}`: what is not said stays.
pub(super) async fn update(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
    origin: Origin,
    JsonBody(describe): JsonBody<Describe>,
) -> Result<Response, ApiError> {
    let key = state.own_draft(&caller, &owner, &name).await?.key();
    let change = |draft: &mut UserModel| {
        draft.describe(&describe);
        Ok(())
    };
    let changed = state.drafts().change(&key, change).await?.ok_or(UNKNOWN)?;
    Ok(reply::ok(&state.shown(changed).written(&origin)?))
}

/// `DELETE /v1/models/{owner}/{name}`, with all that was trained for it.
pub(super) async fn remove(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    let draft = state.own_draft(&caller, &owner, &name).await?;
    for trained in state.models.trained_models_of(&draft.key()) {
        state.models.remove_trained_model(&trained).await?;
    }
    match state.drafts().remove(&draft.key()).await? {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(UNKNOWN),
    }
}

const UNKNOWN: ApiError = ApiError::Unknown("model");

impl AppState {
    fn drafts(&self) -> DocumentCollection<'_> {
        DocumentCollection {
            documents: &*self.config.documents,
            name: "models",
        }
    }

    /// One that the caller may see.
    pub(super) async fn draft(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<UserModel, ApiError> {
        let draft: Option<UserModel> = self.drafts().get(&format!("{owner}/{name}")).await?;
        draft
            .filter(|draft| draft.is_seen_by(&caller.account))
            .ok_or(UNKNOWN)
    }

    /// One that the caller may change.
    async fn own_draft(
        &self,
        caller: &Identity,
        owner: &str,
        name: &str,
    ) -> Result<UserModel, ApiError> {
        if self.desk(owner, name).is_some() {
            return Err(ApiError::ServedFromFolder);
        }
        let draft = self.draft(caller, owner, name).await?;
        if draft.is_of(&caller.account) {
            Ok(draft)
        } else {
            Err(ApiError::NotYourModel(owner.to_owned()))
        }
    }

    /// Whether something can be trained for it.
    pub(super) async fn is_destination(
        &self,
        caller: &Identity,
        model: &str,
    ) -> Result<bool, ApiError> {
        let Some((owner, name)) = model.split_once('/') else {
            return Ok(false);
        };
        if self.desk(owner, name).is_some() {
            return Ok(true);
        }
        match self.draft(caller, owner, name).await {
            Ok(draft) => Ok(draft.is_of(&caller.account)),
            Err(ApiError::Unknown(_)) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// All that the caller may see.
    pub(super) async fn all_drafts(
        &self,
        caller: &Identity,
    ) -> Result<Vec<UserModelView>, ApiError> {
        let mut drafts: Vec<UserModel> = self.drafts().all("").await?;
        drafts.retain(|draft| draft.is_seen_by(&caller.account));
        Ok(drafts.into_iter().map(|draft| self.shown(draft)).collect())
    }

    /// One as callers see it.
    pub(super) fn shown(&self, draft: UserModel) -> UserModelView {
        UserModelView {
            latest: self.latest_trained(&draft.key()).map(VersionView::of),
            draft,
        }
    }

    /// What a caller wants to make, if they may.
    fn draft_of(&self, describe: Describe, caller: &Identity) -> Result<UserModel, ApiError> {
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
        if !is_name(name) {
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
        // Who looks after the server may also add to the models that it serves.
        let may = owner == caller.account.as_str()
            || (caller.role == Role::Admin && self.serves_owner(owner));
        if !may {
            return Err(ApiError::NotYourModel(owner.clone()));
        }
        let mut draft = UserModel {
            owner: owner.clone(),
            name: name.clone(),
            account: name_of(&caller.account).to_owned(),
            created_at: Timestamp::now(),
            visibility,
            hardware: hardware.clone(),
            about: ModelDescription::default(),
            readme: None,
        };
        draft.describe(&describe);
        Ok(draft)
    }

    fn serves_owner(&self, owner: &str) -> bool {
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

    fn is_of(&self, account: &Account) -> bool {
        self.account == name_of(account)
    }

    fn is_seen_by(&self, account: &Account) -> bool {
        self.visibility == Visibility::Public || self.is_of(account)
    }

    fn describe(&mut self, describe: &Describe) {
        let about = &mut self.about;
        for (field, said) in [
            (&mut about.description, &describe.description),
            (&mut about.github_url, &describe.github_url),
            (&mut about.paper_url, &describe.paper_url),
            (&mut about.license_url, &describe.license_url),
            (&mut about.cover_image_url, &describe.cover_image_url),
            (&mut about.weights_url, &describe.weights_url),
            (&mut self.readme, &describe.readme),
        ] {
            if said.is_some() {
                field.clone_from(said);
            }
        }
    }

    pub(super) fn readme(&self) -> Option<&str> {
        self.readme.as_deref()
    }
}

impl UserModelView {
    pub(super) fn written(&self, origin: &Origin) -> Result<wire::Model<'_>, ApiError> {
        let UserModel {
            owner,
            name,
            visibility,
            about,
            ..
        } = &self.draft;
        Ok(wire::Model {
            url: origin.to(&["v1", "models", owner, name]),
            owner,
            name,
            description: about.description.as_deref(),
            visibility: match visibility {
                Visibility::Public => "public",
                Visibility::Private => "private",
            },
            github_url: about.github_url.as_deref(),
            paper_url: about.paper_url.as_deref(),
            license_url: about.license_url.as_deref(),
            run_count: 0,
            cover_image_url: about.cover_image_url.as_deref(),
            default_example: None,
            latest_version: match &self.latest {
                Some(latest) => latest.known_version()?,
                None => None,
            },
        })
    }
}

/// A page of models: those that are served stand on the first, before the others.
pub(super) fn listed<'a>(
    served: Vec<wire::Model<'a>>,
    drafts: &'a [UserModelView],
    query: &str,
    origin: &Origin,
) -> Result<wire::Page<wire::Model<'a>>, ApiError> {
    let mark = |shown: &&UserModelView| SortKey {
        at: shown.draft.created_at,
        name: shown.draft.key(),
    };
    let wire::Page {
        next,
        previous,
        results,
    } = page(
        drafts.iter().collect(),
        mark,
        query,
        origin.url(&["v1", "models"]),
    );
    let first = if has_cursor(query) {
        Vec::new()
    } else {
        served
    };
    let made = results.into_iter().map(|shown| shown.written(origin));
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
    let said = [
        ("owner", describe.owner.is_some()),
        ("name", describe.name.is_some()),
        ("visibility", describe.visibility.is_some()),
        ("hardware", describe.hardware.is_some()),
    ];
    InvalidField::missing(&said)
}

/// As it is written down: nobody can be called like nobody in particular.
fn name_of(account: &Account) -> &str {
    if account.is_anonymous() {
        ""
    } else {
        account.as_str()
    }
}
