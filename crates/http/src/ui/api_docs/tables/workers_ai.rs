//! The paths of the Workers AI API.

use super::{RouteTable, route};

/// The Workers AI API.
pub(in crate::ui::api_docs) static WORKERS_AI: RouteTable = RouteTable {
    api: "workers_ai",
    title: "Workers AI",
    description: "The REST API of Cloudflare's Workers AI for models that generate text or compute embeddings.",
    routes: &[
        route(
            "POST",
            "/client/v4/accounts/{account}/ai/run/{*model}",
            "Run a model",
            &[
                ("prompt", "the text to continue"),
                ("messages", "or the conversation"),
                ("text", "or the texts to embed"),
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
            "/client/v4/accounts/{account}/ai/models/schema",
            "Get the schema of a model",
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
        route(
            "POST",
            "/client/v4/accounts/{account}/ai/v1/completions",
            "Continue a text, in the format of OpenAI's API",
            &[
                ("model", "the name of the model"),
                ("prompt", "the text to continue"),
                ("stream", "whether the answer is sent in parts"),
                ("max_tokens", "the length of the answer"),
            ],
        ),
        route(
            "POST",
            "/client/v4/accounts/{account}/ai/v1/embeddings",
            "Compute embeddings of texts, in the format of OpenAI's API",
            &[
                ("model", "the name of the model"),
                ("input", "a text or a list of texts"),
            ],
        ),
        route(
            "POST",
            "/ai/run/{*model}",
            "Run a model, for the account of the token",
            &[
                ("prompt", "the text to continue"),
                ("messages", "or the conversation"),
                ("text", "or the texts to embed"),
                ("stream", "whether the answer is sent in parts"),
            ],
        ),
        route(
            "POST",
            "/ai/v1/chat/completions",
            "Answer a conversation, for the account of the token",
            &[
                ("model", "the name of the model"),
                (
                    "messages",
                    "the conversation: role and content of each message",
                ),
                ("stream", "whether the answer is sent in parts"),
            ],
        ),
        route(
            "POST",
            "/ai/v1/completions",
            "Continue a text, for the account of the token",
            &[
                ("model", "the name of the model"),
                ("prompt", "the text to continue"),
                ("stream", "whether the answer is sent in parts"),
            ],
        ),
        route(
            "POST",
            "/ai/v1/embeddings",
            "Compute embeddings of texts, for the account of the token",
            &[
                ("model", "the name of the model"),
                ("input", "a text or a list of texts"),
            ],
        ),
    ],
};
