//! The paths of a router.

use super::{RouteTable, openai, route};

/// The APIs of a router, whose paths are matched by hand (`gateway/route.rs`).
pub(in crate::ui::api_docs) static ROUTER: [RouteTable; 4] = [
    RouteTable {
        api: "openai",
        title: "OpenAI",
        description: "OpenAI's API in front of the backends. Other paths below `/v1/` are passed on unchanged.",
        routes: &[
            route("GET", "/v1/models", "List models", &[]),
            route("GET", "/v1/models/{*id}", "Get a model", &[]),
            openai::CHAT,
            openai::COMPLETIONS,
            openai::EMBEDDINGS,
        ],
    },
    RouteTable {
        api: "workers_ai",
        title: "Workers AI",
        description: "The REST API of Cloudflare's Workers AI in front of the backends.",
        routes: &[
            route(
                "POST",
                "/client/v4/accounts/{account}/ai/run/{*model}",
                "Run a model",
                &[
                    ("prompt", "the text to continue"),
                    ("messages", "or the conversation"),
                    ("stream", "whether the answer is sent in parts"),
                ],
            ),
            route(
                "GET",
                "/client/v4/accounts/{account}/ai/models/search",
                "Search models",
                &[],
            ),
            route(
                "GET",
                "/client/v4/accounts/{account}/ai/v1/models",
                "List models, in the format of OpenAI's API",
                &[],
            ),
            route(
                "POST",
                "/client/v4/accounts/{account}/ai/v1/chat/completions",
                "Answer a conversation, in the format of OpenAI's API",
                &[
                    ("model", "the name of the model"),
                    (
                        "messages",
                        "the conversation: role and content of each message",
                    ),
                    ("stream", "whether the answer is sent in parts"),
                    ("max_tokens", "the length of the answer"),
                    ("temperature", "how random the answer is"),
                ],
            ),
        ],
    },
    RouteTable {
        api: "cog",
        title: "Cog",
        description: "Predictions of backends with Cog's API.",
        routes: &[
            route(
                "POST",
                "/predictions",
                "Run a prediction of the model that the body names",
                &[
                    ("model", "the name of the model"),
                    ("input", "the inputs of the model"),
                ],
            ),
            route(
                "PUT",
                "/predictions/{id}",
                "Run a prediction with this id",
                &[
                    ("model", "the name of the model"),
                    ("input", "the inputs of the model"),
                ],
            ),
            route(
                "POST",
                "/models/{*model}/predictions",
                "Run a prediction of this model",
                &[("input", "the inputs of the model")],
            ),
        ],
    },
    RouteTable {
        api: "admin",
        title: "Operation",
        description: "The state of the router, and the metrics.",
        routes: &[
            route(
                "GET",
                "/admin/status",
                "Get models, backends and numbers at once",
                &[],
            ),
            route(
                "GET",
                "/admin/router",
                "Get models, endpoints, accounts and sites",
                &[],
            ),
            route(
                "POST",
                "/admin/router/reload",
                "Read the configuration again",
                &[],
            ),
            route(
                "POST",
                "/admin/router/drain",
                "Take an endpoint out of use, or back",
                &[
                    ("endpoint", "the URL"),
                    ("draining", "whether it takes no more requests"),
                ],
            ),
            route(
                "GET",
                "/health-check",
                "Get the health for load balancers",
                &[],
            ),
            route("GET", "/metrics", "Get the metrics for Prometheus", &[]),
        ],
    },
];
