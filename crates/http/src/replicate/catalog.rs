//! The catalog besides the models themselves: hardware, collections, examples, readmes and search.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::Response;
use url::form_urlencoded;

use super::AppState;
use super::origin::Origin;
use super::reply::{self, ApiError};
use super::wire::{self, InvalidField};
use crate::access::Identity;

/// The hardware that models run on.
pub(super) const HARDWARE: [wire::Hardware; 1] = [wire::Hardware {
    sku: "local",
    name: "This machine",
}];
/// The one collection.
const ALL: wire::Collection = wire::Collection {
    name: "All models",
    slug: "all",
    description: "Every model that you can see here.",
};
/// The longest readme that is returned, in bytes.
const MAX_README: u64 = 1024 * 1024;
/// The number of models that a search returns: the default and the maximum.
const FOUND: usize = 20;
const MAX_FOUND: usize = 50;

/// `GET /v1/hardware`: a bare list, not a page.
pub(super) async fn hardware() -> Response {
    reply::ok(&HARDWARE)
}

/// `GET /v1/collections`
pub(super) async fn collections() -> Response {
    reply::ok(&wire::Page::only(vec![ALL]))
}

/// `GET /v1/collections/{slug}`
pub(super) async fn collection(
    State(state): State<Arc<AppState>>,
    Path(slug): Path<String>,
    caller: Identity,
    origin: Origin,
) -> Result<Response, ApiError> {
    if slug != ALL.slug {
        return Err(ApiError::Unknown("collection"));
    }
    let (served, user_models) = (state.served(), state.all_user_models(&caller).await?);
    let models = state.models(&served, &user_models, &origin)?;
    Ok(reply::ok(&wire::WholeCollection { about: ALL, models }))
}

/// `GET /v1/models/{owner}/{name}/examples`
pub(super) async fn examples(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    if state.job_service(&owner, &name).is_none() {
        state.user_model(&caller, &owner, &name).await?;
    }
    Ok(reply::ok(&wire::Page::<()>::only(Vec::new())))
}

/// `GET /v1/models/{owner}/{name}/readme`: from the model's folder, or the one that its user gave.
pub(super) async fn readme(
    State(state): State<Arc<AppState>>,
    Path((owner, name)): Path<(String, String)>,
    caller: Identity,
) -> Result<Response, ApiError> {
    let text = match state.served_version(&owner, &name) {
        Some(version) => read_readme(&version.folder).await?,
        None => state
            .user_model(&caller, &owner, &name)
            .await?
            .readme()
            .map(str::to_owned),
    };
    let mut response = Response::new(text.ok_or(ApiError::Unknown("readme"))?.into());
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/markdown; charset=utf-8"),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}

/// The readme in the folder of a model; `None` if it is too long or not UTF-8.
async fn read_readme(folder: &std::path::Path) -> Result<Option<String>, ApiError> {
    let path = folder.join("README.md");
    match tokio::fs::metadata(&path).await {
        Ok(about) if about.is_file() && about.len() <= MAX_README => {}
        Ok(_) | Err(_) => return Ok(None),
    }
    match tokio::fs::read(&path).await {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ApiError::Disk(error.to_string())),
    }
}

/// `GET /v1/search`: models whose name or description contains the text.
pub(super) async fn search(
    State(state): State<Arc<AppState>>,
    RawQuery(query): RawQuery,
    caller: Identity,
    origin: Origin,
) -> Result<Response, ApiError> {
    let query = query.unwrap_or_default();
    let (text, limit) = search_params(&query)?;
    let (served, user_models) = (state.served(), state.all_user_models(&caller).await?);
    let found = state
        .models(&served, &user_models, &origin)?
        .into_iter()
        .filter(|model| model.matches(&text))
        .take(limit);
    let models = found
        .map(|model| wire::Found {
            model,
            metadata: wire::Metadata {},
        })
        .collect();
    let collections = if wire::contains_ignoring_case(ALL.name, &text) {
        vec![ALL]
    } else {
        Vec::new()
    };
    Ok(reply::ok(&wire::Search {
        query: &text,
        models,
        collections,
        pages: [],
    }))
}

fn search_params(query: &str) -> Result<(String, usize), ApiError> {
    let value = |key: &str| {
        form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name == key)
            .map(|(_, value)| value)
    };
    let text =
        value("query").ok_or_else(|| ApiError::Fields(vec![InvalidField::required("query")]))?;
    let limit = match value("limit").map(|limit| limit.parse()) {
        None => FOUND,
        Some(Ok(limit @ 1..=MAX_FOUND)) => limit,
        Some(_) => {
            return Err(ApiError::Fields(vec![InvalidField::invalid(
                "limit",
                &format!("limit must be from 1 to {MAX_FOUND}"),
            )]));
        }
    };
    Ok((text.into_owned(), limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_has_a_text_and_a_bounded_limit() {
        assert_eq!(
            search_params("query=a+b").ok(),
            Some(("a b".to_owned(), 20))
        );
        assert_eq!(
            search_params("limit=50&query=").ok(),
            Some((String::new(), 50))
        );
        for wrong in [
            "",
            "limit=3",
            "query=a&limit=0",
            "query=a&limit=51",
            "query=a&limit=x",
        ] {
            assert!(search_params(wrong).is_err(), "{wrong}");
        }
    }
}
