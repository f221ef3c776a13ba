//! The paths of OpenAI's API.

use super::{DocumentedRoute, RouteTable, route};

/// Answers a conversation.
pub(super) const CHAT: DocumentedRoute = route(
    "POST",
    "/v1/chat/completions",
    "Answer a conversation",
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
);
/// Continues a text.
pub(super) const COMPLETIONS: DocumentedRoute = route(
    "POST",
    "/v1/completions",
    "Continue a text",
    &[
        ("model", "the name of the model"),
        ("prompt", "the text to continue"),
        ("stream", "whether the answer is sent in parts"),
        ("max_tokens", "the length of the answer"),
    ],
);
/// Computes embeddings.
pub(super) const EMBEDDINGS: DocumentedRoute = route(
    "POST",
    "/v1/embeddings",
    "Compute embeddings of texts",
    &[
        ("model", "the name of the model"),
        ("input", "a text or a list of texts"),
    ],
);

/// OpenAI's API.
pub(in crate::ui::api_docs) static OPENAI: RouteTable = RouteTable {
    api: "openai",
    title: "OpenAI",
    description: "OpenAI's API for models that generate text or compute embeddings. `GET /v1/models` lists the models.",
    routes: &[CHAT, COMPLETIONS, EMBEDDINGS],
};
