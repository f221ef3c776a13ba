//! The paths of the admin API.

use super::{RouteTable, route};

/// The admin API.
pub(in crate::ui::api_docs) static ADMIN: RouteTable = RouteTable {
    api: "admin",
    title: "Operation",
    description: "The admin API and the metrics.",
    routes: &[
        route(
            "GET",
            "/admin/status",
            "Get models, queues, processes and numbers at once",
            &[],
        ),
        route("GET", "/admin/models", "List models with their health", &[]),
        route(
            "GET",
            "/admin/models/{owner}/{name}/logs",
            "Follow the logs of the setup of a model",
            &[],
        ),
        route(
            "GET",
            "/admin/queues",
            "List waiting and running jobs by model and account",
            &[],
        ),
        route(
            "GET",
            "/admin/children",
            "List the processes of the models",
            &[],
        ),
        route(
            "GET",
            "/admin/gpus",
            "List GPUs and the processes that use them",
            &[],
        ),
        route(
            "GET",
            "/admin/logs",
            "Follow the logs of the jobs of a model as events",
            &[],
        ),
        route("GET", "/admin/jobs", "List jobs, open ones first", &[]),
        route(
            "GET",
            "/admin/jobs/{account}/{id}",
            "Get a job with its logs",
            &[],
        ),
        route(
            "GET",
            "/admin/jobs/{account}/{id}/attempts",
            "List the attempts to run a job",
            &[],
        ),
        route(
            "GET",
            "/admin/jobs/{account}/{id}/logs",
            "Follow the logs of a job",
            &[],
        ),
        route(
            "POST",
            "/admin/jobs/{account}/{id}/cancel",
            "Cancel a job",
            &[],
        ),
        route(
            "GET",
            "/admin/deliveries",
            "List webhooks with their attempts",
            &[],
        ),
        route(
            "POST",
            "/admin/deliveries/{id}/replay",
            "Send a webhook again",
            &[],
        ),
        route("GET", "/metrics", "Get the metrics for Prometheus", &[]),
    ],
};
