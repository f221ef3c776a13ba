//! The models and endpoints of the server, with the schema and an example for their forms.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tidegate_core::health::{Health, HealthReport, SetupReport, error_line};
use tidegate_core::model_interface::ModelTask;
use tidegate_router::fleet::{BackendKind, FleetModel};
use tidegate_router::statistics::ModelStatistics;
use tidegate_service::{JobService, ModelSchema, ServedModel, ServedVersion};

use super::wire::{
    ModelDocument, ModelKind, ModelState, ModelSummary, Models, RunRequest, RunStyle,
    ServerCommand, SetupDocument, VersionDocument, seconds,
};
use super::{ListedEndpoint, UiState, is_operator};
use crate::access::Identity;
use crate::admin::{ApiError, ok};
use crate::cog::{ExampleRequest, health_name};

/// The most characters of the detail of a state: it is one line on the page.
const MAX_DETAIL: usize = 500;

/// `GET /ui/api/models`
pub(super) async fn list(State(ui): State<Arc<UiState>>, client: Identity) -> Response {
    ui.refresh_trained_models().await;
    let mut models = ui.model_summaries();
    models.retain(|model| model.is_visible_to(&client.account));
    ok(&Models { models })
}

/// `GET /ui/api/models/{owner}/{name}`; the names of a router's models have any number of parts.
pub(super) async fn show(
    State(ui): State<Arc<UiState>>,
    client: Identity,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    if let Some((model, statistics)) = ui.routed_model(&name) {
        return Ok(ok(&routed_document(&model, &statistics)));
    }
    let models = ui.sources.models.as_ref();
    let Some(model) = models.and_then(|models| models.get(&name)) else {
        ui.refresh_trained_models().await;
        let shown = ui.show_trained(&name, &client, |document| ok(document));
        return shown.ok_or(ApiError::UnknownModel(name));
    };
    let version = model.current();
    let (summary, versions) = (ui.summary_of(&model), ui.versions_of(&model, &client));
    Ok(document_of(
        summary,
        &version,
        versions,
        &client,
        |document| ok(document),
    ))
}

/// The document of a model that this version runs.
pub(super) fn document_of<T>(
    summary: ModelSummary,
    version: &ServedVersion,
    versions: Vec<VersionDocument>,
    client: &Identity,
    render: impl FnOnce(&ModelDocument<'_>) -> T,
) -> T {
    let schema = version.jobs.description();
    let document: Value = schema
        .as_ref()
        .and_then(|schema| serde_json::from_slice(&schema.document).ok())
        .unwrap_or_default();
    let example = ExampleRequest::new(&document, &version.folder).body;
    let report = version.jobs.report();
    render(&ModelDocument {
        run: RunRequest {
            path: format!("v1/models/{}/predictions", summary.name),
            style: RunStyle::Replicate,
        },
        summary,
        schema: schema.as_ref().and_then(raw_document),
        example: example.get("input").cloned().unwrap_or_default(),
        versions,
        setup: report.setup.map(|setup| setup_of(setup, client)),
    })
}

/// `GET /ui/api/endpoints/{name}`
pub(super) async fn show_endpoint(
    State(ui): State<Arc<UiState>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let mut endpoints = (ui.sources.endpoints)().into_iter();
    let endpoint = endpoints.find(|endpoint| endpoint.name == name);
    let endpoint = endpoint.ok_or_else(|| ApiError::UnknownEndpoint(name.clone()))?;
    Ok(ok(&ModelDocument {
        summary: endpoint_summary(&endpoint),
        schema: None,
        // The server does not know the inputs of the workers' handler.
        example: json!({ "name": "world" }),
        run: RunRequest {
            path: format!("v2/{name}/run"),
            style: RunStyle::Runpod,
        },
        versions: Vec::new(),
        setup: None,
    }))
}

impl UiState {
    /// The models, then those that exist by trainings, then the endpoints, each by name.
    pub(super) fn model_summaries(&self) -> Vec<ModelSummary> {
        let models = self.sources.models.iter().flat_map(|models| models.all());
        let served = models.map(|model| self.summary_of(&model));
        let endpoints = (self.sources.endpoints)();
        let routed = self.routed_models().into_iter();
        served
            .chain(self.trained_summaries())
            .chain(endpoints.iter().map(endpoint_summary))
            .chain(routed.map(|(model, statistics)| routed_summary(&model, &statistics)))
            .collect()
    }

    /// Looks for versions that other processes have trained.
    async fn refresh_trained_models(&self) {
        if let Some(models) = &self.sources.models
            && let Err(error) = models.refresh_trained_models().await
        {
            tracing::warn!(error = %tidegate_core::chain(&error), "failed to read the trained versions");
        }
    }

    fn summary_of(&self, model: &ServedModel) -> ModelSummary {
        self.version_summary(model.name(), &model.current())
    }

    /// A model that this version runs.
    pub(super) fn version_summary(&self, name: &str, version: &ServedVersion) -> ModelSummary {
        let schema = version.jobs.description();
        let does = |test: fn(&ModelSchema) -> bool| schema.as_deref().is_some_and(test);
        ModelSummary {
            kind: ModelKind::Model,
            name: name.to_owned(),
            owner: None,
            version: Some(version.id().to_owned()),
            description: version.description.clone(),
            state: self.state_of(&version.jobs),
            chat: does(|schema| schema.interface.task() == ModelTask::TextGeneration),
            trainable: does(|schema| schema.trainable),
        }
    }

    fn state_of(&self, jobs: &JobService) -> ModelState {
        let report = jobs.report();
        ModelState {
            health: self.health_of(&report),
            detail: detail(&report),
            since: since(&report).map(|at| at.to_string()),
        }
    }

    /// The health of a model. One that is loaded with its first job is ready and not loaded; in a cluster,
    /// directors load the models.
    pub(super) fn health_of(&self, report: &HealthReport) -> &'static str {
        let can_unload = self.sources.command == ServerCommand::Serve;
        match report.health {
            Health::Ready if can_unload && report.setup.is_none() => "NOT_LOADED",
            _ => health_name(report),
        }
    }

    /// The models of a router.
    pub(super) fn routed_models(&self) -> Vec<(Arc<FleetModel>, ModelStatistics)> {
        let Some(router) = &self.sources.router else {
            return Vec::new();
        };
        let table = router.registry.table();
        let models = table.fleet().models().iter().zip(table.groups());
        models
            .map(|(model, group)| (Arc::clone(model), group.statistics()))
            .collect()
    }

    fn routed_model(&self, name: &str) -> Option<(Arc<FleetModel>, ModelStatistics)> {
        let mut models = self.routed_models().into_iter();
        models.find(|(model, _)| model.name == name)
    }
}

fn endpoint_summary(endpoint: &ListedEndpoint) -> ModelSummary {
    let health = match &endpoint.endpoint {
        // Jobs are accepted whether there are workers or not.
        Some(endpoint) => health_name(&endpoint.jobs.report()),
        None => "READY",
    };
    ModelSummary {
        kind: ModelKind::Endpoint,
        name: endpoint.name.clone(),
        owner: None,
        version: None,
        description: None,
        state: ModelState {
            health,
            detail: None,
            since: None,
        },
        chat: false,
        trainable: false,
    }
}

fn routed_summary(model: &FleetModel, statistics: &ModelStatistics) -> ModelSummary {
    let usable = statistics.endpoints.iter().any(|e| e.state.is_usable());
    let is_full = statistics.total_permits as usize <= statistics.used_permits;
    let (health, detail) = match (usable, is_full) {
        (false, _) => ("UNHEALTHY", Some("no endpoint is available".to_owned())),
        (true, true) => ("BUSY", None),
        (true, false) => ("READY", None),
    };
    ModelSummary {
        kind: ModelKind::Routed,
        name: model.name.clone(),
        owner: None,
        version: None,
        description: None,
        state: ModelState {
            health,
            detail,
            since: None,
        },
        chat: run_style(model) == RunStyle::Chat,
        trainable: false,
    }
}

fn routed_document(model: &FleetModel, statistics: &ModelStatistics) -> ModelDocument<'static> {
    let style = run_style(model);
    let (path, example) = match style {
        RunStyle::Cog => (
            format!("models/{}/predictions", model.name),
            json!({ "text": "world" }),
        ),
        RunStyle::Chat | RunStyle::Replicate | RunStyle::Runpod => {
            ("v1/chat/completions".to_owned(), json!({}))
        }
    };
    ModelDocument {
        summary: routed_summary(model, statistics),
        schema: None,
        example,
        run: RunRequest { path, style },
        versions: Vec::new(),
        setup: None,
    }
}

/// Backends with an API for texts are asked for chats; a Cog server has any inputs.
fn run_style(model: &FleetModel) -> RunStyle {
    let is_chat = |kind: BackendKind| match kind {
        BackendKind::OpenAi | BackendKind::Tgi => true,
        BackendKind::Cog | BackendKind::Tei | BackendKind::Triton | BackendKind::Tidegate => false,
    };
    match model
        .endpoints
        .iter()
        .any(|endpoint| is_chat(endpoint.kind))
    {
        true => RunStyle::Chat,
        false => RunStyle::Cog,
    }
}

/// One line about a model that is not ready: the last line of its setup, its error, or why it is not available.
fn detail(report: &HealthReport) -> Option<String> {
    let logs = report.setup.as_ref().map(|setup| setup.logs.as_str());
    // One line only: a whole traceback is for administrators.
    let last_line = |text: Option<&'_ str>| {
        text.and_then(|text| text.lines().map(str::trim).rfind(|line| !line.is_empty()))
            .map(str::to_owned)
    };
    let error = || last_line(report.health_error.as_deref());
    let text = match report.health {
        Health::Starting => last_line(logs).or_else(error),
        Health::SetupFailed => logs.and_then(error_line).map(str::to_owned).or_else(error),
        Health::Ready | Health::Busy | Health::Defunct | Health::Unknown => error(),
    };
    text.map(|text| text.chars().take(MAX_DETAIL).collect())
}

/// Since when a model loads, or is loaded.
fn since(report: &HealthReport) -> Option<Timestamp> {
    let setup = report.setup.as_ref()?;
    Some(setup.completed_at.unwrap_or(setup.started_at))
}

fn setup_of(setup: SetupReport, client: &Identity) -> SetupDocument {
    SetupDocument {
        status: setup.status,
        started_at: setup.started_at.to_string(),
        took_s: setup.completed_at.map(|end| seconds(setup.started_at, end)),
        logs: is_operator(client).then_some(setup.logs),
    }
}

fn raw_document(schema: &Arc<ModelSchema>) -> Option<&RawValue> {
    serde_json::from_slice(&schema.document).ok()
}

#[cfg(test)]
mod tests {
    use tidegate_core::health::SetupStatus;

    use super::*;

    fn report(health: Health, logs: &str, health_error: Option<&str>) -> HealthReport {
        HealthReport {
            health,
            setup: Some(SetupReport {
                started_at: Timestamp::UNIX_EPOCH,
                completed_at: None,
                status: SetupStatus::Starting,
                logs: logs.to_owned(),
            }),
            health_error: health_error.map(str::to_owned),
            python: None,
            sdk: None,
        }
    }

    #[test]
    fn the_detail_is_the_last_line_of_the_setup_or_the_error() {
        let loading = report(Health::Starting, "one\nloading 50 %\n\n", None);
        assert_eq!(detail(&loading).as_deref(), Some("loading 50 %"));
        let failed = report(Health::SetupFailed, "Traceback\nKeyError: 'x'", None);
        assert_eq!(detail(&failed).as_deref(), Some("KeyError: 'x'"));
        let advice = "Traceback\nKeyError: 'x'\n  needs:\n    y\n  try: z\n\n";
        let advised = report(Health::SetupFailed, advice, None);
        assert_eq!(detail(&advised).as_deref(), Some("KeyError: 'x'"));
        let indented = report(Health::SetupFailed, "\n  only this", None);
        assert_eq!(detail(&indented).as_deref(), Some("only this"));
        let again = report(Health::Starting, "", Some("exited with status 1"));
        assert_eq!(detail(&again).as_deref(), Some("exited with status 1"));
        assert_eq!(detail(&report(Health::Ready, "loaded", None)), None);
        let unhealthy = report(Health::Ready, "loaded", Some("no GPU"));
        assert_eq!(detail(&unhealthy).as_deref(), Some("no GPU"));
    }
}
