//! `GET /ui/api/docs`: an OpenAPI document for each API that is on.
//!
//! Cog's documents come from the models, which declare their inputs. The other APIs have fixed paths, which
//! `tables` lists with a sentence each; a test compares the tables with the routes.

mod tables;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tidegate_core::counters::MetricLabel;
use tidegate_core::record::Api;

use super::UiState;
use super::publisher::text;
use super::wire::ServerCommand;
use crate::admin::ok;
use tables::{DocumentedRoute, RouteTable};

#[derive(Serialize)]
struct ApiDocs {
    apis: Vec<ApiDocument>,
}

/// The documentation of one API, or of one model in Cog's API.
#[derive(Serialize)]
struct ApiDocument {
    api: &'static str,
    title: String,
    /// The path below the root of the server that the paths of the document are relative to.
    base: String,
    openapi: Arc<RawValue>,
}

/// `GET /ui/api/docs`
pub(super) async fn show(State(ui): State<Arc<UiState>>) -> Response {
    let mut apis = ui.cog_documents();
    let tables = ui.route_tables();
    apis.extend(tables.iter().map(|table| ApiDocument {
        api: table.api,
        title: table.title.to_owned(),
        base: String::new(),
        openapi: text(&document(table, ui.sources.build.version)),
    }));
    ok(&ApiDocs { apis })
}

impl UiState {
    /// The documents of the models, as far as they are known.
    fn cog_documents(&self) -> Vec<ApiDocument> {
        let models = self.sources.models.iter().flat_map(|models| models.all());
        let document = |model: Arc<tidegate_service::ServedModel>| {
            let schema = model.jobs().description()?;
            let json = String::from_utf8(schema.document.to_vec()).ok()?;
            Some(ApiDocument {
                api: Api::Cog.as_str(),
                title: format!("Cog: {}", model.name()),
                base: format!("models/{}", model.name()),
                openapi: Arc::from(RawValue::from_string(json).ok()?),
            })
        };
        models.filter_map(document).collect()
    }

    /// The tables of the APIs that are on.
    fn route_tables(&self) -> Vec<&'static RouteTable> {
        let is_on = |api: Api| self.apis().contains(&api);
        if self.sources.command == ServerCommand::Router {
            return tables::ROUTER.iter().collect();
        }
        let mut found = Vec::new();
        for (api, table) in [
            (Api::Replicate, &tables::REPLICATE),
            (Api::OpenAi, &tables::OPENAI),
            (Api::WorkersAi, &tables::WORKERS_AI),
        ] {
            found.extend(is_on(api).then_some(table));
        }
        if self.has_handler() {
            found.push(&tables::RUNPOD_LOCAL);
        }
        if !(self.sources.endpoints)().is_empty() || !is_on(Api::Cog) {
            found.push(&tables::RUNPOD_PLATFORM);
        }
        found.push(&tables::ADMIN);
        found
    }
}

/// The OpenAPI document of a table.
fn document(table: &RouteTable, version: &str) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in table.routes {
        let operations = paths
            .entry(openapi_path(route.path))
            .or_insert_with(|| json!({}));
        operations[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.0.3",
        "info": { "title": table.title, "description": table.description, "version": version },
        "paths": paths,
    })
}

fn operation(route: &DocumentedRoute) -> Value {
    let parameters: Vec<Value> = parameters(route.path)
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters,
        "responses": { "default": { "description": "JSON" } },
    });
    if !route.body.is_empty() {
        let fields = route.body.iter();
        let properties: Map<String, Value> = fields
            .map(|(name, description)| ((*name).to_owned(), json!({ "description": description })))
            .collect();
        let schema = json!({ "type": "object", "properties": properties });
        operation["requestBody"] =
            json!({ "content": { "application/json": { "schema": schema } } });
    }
    operation
}

/// The path in OpenAPI, where a parameter has no `*`.
fn openapi_path(path: &str) -> String {
    path.replace("{*", "{")
}

fn parameters(path: &str) -> impl Iterator<Item = &str> {
    let segments = path.split('/');
    segments
        .filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
        .map(|name| name.trim_start_matches('*'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use regex::Regex;

    use super::*;

    /// The paths of the routes in a source file, without those that only refuse requests.
    fn routes_in(source: &str) -> BTreeSet<String> {
        let route = Regex::new(r#"\.route\(\s*(?:&at\()?(?:"([^"]+)"|MODELS_PATH)"#).unwrap();
        let found = route.captures_iter(source).map(|found| {
            let path = found.get(1).map_or("/v1/models", |path| path.as_str());
            match path.starts_with('/') {
                true => path.to_owned(),
                false => format!("/client/v4/accounts/{{account}}/ai/{path}"),
            }
        });
        found.filter(|path| !path.contains("{*rest}")).collect()
    }

    fn documented(table: &RouteTable) -> BTreeSet<String> {
        table
            .routes
            .iter()
            .map(|route| route.path.to_owned())
            .collect()
    }

    #[test]
    fn every_route_is_documented_and_no_other() {
        let cases: [(&RouteTable, &str, &[&str]); 6] = [
            (
                &tables::REPLICATE,
                include_str!("../../replicate/mod.rs"),
                &[],
            ),
            (&tables::OPENAI, include_str!("../../openai/mod.rs"), &[]),
            (
                &tables::WORKERS_AI,
                include_str!("../../workers_ai/mod.rs"),
                &[],
            ),
            (
                &tables::RUNPOD_LOCAL,
                include_str!("../../runpod/local/mod.rs"),
                &[],
            ),
            (
                &tables::RUNPOD_PLATFORM,
                include_str!("../../runpod/platform/mod.rs"),
                &["/", "/docs", "/health-check"],
            ),
            (&tables::ADMIN, include_str!("../../admin/mod.rs"), &[]),
        ];
        for (table, source, elsewhere) in cases {
            let mut routes = routes_in(source);
            routes.retain(|path| !elsewhere.contains(&path.as_str()));
            // Replicate's API lists models for OpenAI's clients, too; other modules have the metrics and the
            // status, which operators find beside.
            let mut documented = documented(table);
            documented.retain(|path| !["/metrics", "/admin/status"].contains(&path.as_str()));
            assert_eq!(documented, routes, "{}", table.title);
        }
    }

    #[test]
    fn a_document_has_every_operation_with_its_parameters() {
        let document = document(&tables::REPLICATE, "1");
        let show = &document["paths"]["/v1/models/{owner}/{name}"]["get"];
        assert!(show["summary"].is_string());
        let names: Vec<_> = show["parameters"].as_array().unwrap().iter().collect();
        assert_eq!(names.len(), 2);
        let create = &document["paths"]["/v1/predictions"]["post"];
        assert!(create["requestBody"]["content"]["application/json"].is_object());
        assert_eq!(openapi_path("/ai/run/{*model}"), "/ai/run/{model}");
    }
}
