//! The paths of the APIs, each with a sentence for the documentation.

/// The documented paths of one API.
pub(super) struct RouteTable {
    pub(super) api: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) routes: &'static [DocumentedRoute],
}

/// One operation.
pub(super) struct DocumentedRoute {
    pub(super) method: &'static str,
    /// As the router writes it: `{*name}` takes the rest of the path.
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    /// The main fields of the body, each with what it means.
    pub(super) body: &'static [(&'static str, &'static str)],
}

const fn route(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    body: &'static [(&'static str, &'static str)],
) -> DocumentedRoute {
    DocumentedRoute {
        method,
        path,
        summary,
        body,
    }
}

/// Replicate's API.
pub(super) static REPLICATE: RouteTable = RouteTable {
    api: "replicate",
    title: "Replicate",
    description: "Replicate's HTTP API: predictions of the models of this server, which its clients use unchanged.",
    routes: &[
        route(
            "GET",
            "/v1/predictions",
            "List predictions, newest first",
            &[],
        ),
        route(
            "POST",
            "/v1/predictions",
            "Create a prediction of a version",
            &[
                ("version", "the id of the version, or `owner/name`"),
                ("input", "the inputs of the model"),
                ("webhook", "the URL that receives events of the prediction"),
                (
                    "webhook_events_filter",
                    "which events are sent: start, output, logs, completed",
                ),
            ],
        ),
        route("GET", "/v1/predictions/{id}", "Get a prediction", &[]),
        route(
            "POST",
            "/v1/predictions/{id}/cancel",
            "Cancel a prediction",
            &[],
        ),
        route("GET", "/v1/trainings", "List trainings, newest first", &[]),
        route("GET", "/v1/trainings/{id}", "Get a training", &[]),
        route(
            "POST",
            "/v1/trainings/{id}/cancel",
            "Cancel a training",
            &[],
        ),
        route(
            "GET",
            "/v1/streams/{token}",
            "Follow the output of a prediction as server-sent events; the URL is in the prediction",
            &[],
        ),
        route("GET", "/v1/files", "List files", &[]),
        route(
            "POST",
            "/v1/files",
            "Upload a file as multipart form, in the field `content`",
            &[],
        ),
        route("GET", "/v1/files/{id}", "Get the metadata of a file", &[]),
        route("DELETE", "/v1/files/{id}", "Delete a file", &[]),
        route(
            "GET",
            "/v1/files/streams/{token}",
            "Follow the files of an output as server-sent events",
            &[],
        ),
        route(
            "GET",
            "/v1/files/{id}/{name}",
            "Download a file with a signed URL",
            &[],
        ),
        route("GET", "/v1/models", "List models", &[]),
        route(
            "POST",
            "/v1/models",
            "Create a model for trained versions",
            &[
                ("owner", "the owner"),
                ("name", "the name"),
                ("visibility", "public or private"),
                ("hardware", "the hardware"),
            ],
        ),
        route(
            "GET",
            "/v1/models/{id}",
            "Get a model, for clients of OpenAI's API",
            &[],
        ),
        route("GET", "/v1/models/{owner}/{name}", "Get a model", &[]),
        route(
            "PATCH",
            "/v1/models/{owner}/{name}",
            "Change a model that was created by a client",
            &[("description", "the description")],
        ),
        route(
            "DELETE",
            "/v1/models/{owner}/{name}",
            "Delete a model that was created by a client",
            &[],
        ),
        route(
            "GET",
            "/v1/models/{owner}/{name}/examples",
            "List example predictions of a model",
            &[],
        ),
        route(
            "GET",
            "/v1/models/{owner}/{name}/readme",
            "Get the README of a model",
            &[],
        ),
        route(
            "POST",
            "/v1/models/{owner}/{name}/predictions",
            "Create a prediction of a model",
            &[
                ("input", "the inputs of the model"),
                ("webhook", "the URL that receives events of the prediction"),
                (
                    "webhook_events_filter",
                    "which events are sent: start, output, logs, completed",
                ),
            ],
        ),
        route(
            "GET",
            "/v1/models/{owner}/{name}/versions",
            "List the versions of a model",
            &[],
        ),
        route(
            "GET",
            "/v1/models/{owner}/{name}/versions/{version}",
            "Get a version with its schema",
            &[],
        ),
        route(
            "DELETE",
            "/v1/models/{owner}/{name}/versions/{version}",
            "Delete a trained version",
            &[],
        ),
        route(
            "POST",
            "/v1/models/{owner}/{name}/versions/{version}/trainings",
            "Train a version",
            &[
                ("destination", "the model that gets the new version"),
                ("input", "the inputs of the model"),
                ("webhook", "the URL that receives events of the prediction"),
            ],
        ),
        route("GET", "/v1/deployments", "List deployments", &[]),
        route(
            "POST",
            "/v1/deployments",
            "Create a deployment",
            &[
                ("name", "the name"),
                ("model", "the model"),
                ("version", "the version"),
                ("hardware", "the hardware"),
                ("min_instances", "at least so many instances"),
                ("max_instances", "at most so many instances"),
            ],
        ),
        route(
            "GET",
            "/v1/deployments/{owner}/{name}",
            "Get a deployment",
            &[],
        ),
        route(
            "PATCH",
            "/v1/deployments/{owner}/{name}",
            "Change a deployment",
            &[("version", "the version")],
        ),
        route(
            "DELETE",
            "/v1/deployments/{owner}/{name}",
            "Delete a deployment",
            &[],
        ),
        route(
            "GET",
            "/v1/deployments/{owner}/{name}/releases",
            "List the releases of a deployment",
            &[],
        ),
        route(
            "POST",
            "/v1/deployments/{owner}/{name}/predictions",
            "Create a prediction of a deployment",
            &[
                ("input", "the inputs of the model"),
                ("webhook", "the URL that receives events of the prediction"),
                (
                    "webhook_events_filter",
                    "which events are sent: start, output, logs, completed",
                ),
            ],
        ),
        route("GET", "/v1/account", "Get the account of the token", &[]),
        route(
            "GET",
            "/v1/webhooks/default/secret",
            "Get the secret that signs webhooks",
            &[],
        ),
        route("GET", "/v1/hardware", "List hardware", &[]),
        route("GET", "/v1/collections", "List collections of models", &[]),
        route(
            "GET",
            "/v1/collections/{slug}",
            "Get a collection of models",
            &[],
        ),
        route("GET", "/v1/search", "Search models", &[]),
    ],
};

/// OpenAI's API.
pub(super) static OPENAI: RouteTable = RouteTable {
    api: "openai",
    title: "OpenAI",
    description: "OpenAI's API for models that generate text or compute embeddings. `GET /v1/models` lists the models.",
    routes: &[
        route(
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
        ),
        route(
            "POST",
            "/v1/completions",
            "Continue a text",
            &[
                ("model", "the name of the model"),
                ("prompt", "the text to continue"),
                ("stream", "whether the answer is sent in parts"),
                ("max_tokens", "the length of the answer"),
            ],
        ),
        route(
            "POST",
            "/v1/embeddings",
            "Compute embeddings of texts",
            &[
                ("model", "the name of the model"),
                ("input", "a text or a list of texts"),
            ],
        ),
    ],
};

/// The Workers AI API.
pub(super) static WORKERS_AI: RouteTable = RouteTable {
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
    ],
};

/// Runpod's local API.
pub(super) static RUNPOD_LOCAL: RouteTable = RouteTable {
    api: "runpod",
    title: "Runpod, local API",
    description: "The API of a Runpod handler that serves itself. With several models it is below `/models/OWNER/NAME`.",
    routes: &[
        route(
            "POST",
            "/run",
            "Start a job",
            &[
                ("input", "the input of the handler"),
                ("webhook", "the URL that receives the end of the job"),
            ],
        ),
        route(
            "POST",
            "/runsync",
            "Run a job and wait for its end",
            &[
                ("input", "the input of the handler"),
                ("webhook", "the URL that receives the end of the job"),
            ],
        ),
        route("GET", "/status/{id}", "Get the status of a job", &[]),
        route("POST", "/status/{id}", "Wait for the end of a job", &[]),
        route(
            "GET",
            "/stream/{id}",
            "Get the next parts of a job's output",
            &[],
        ),
        route(
            "POST",
            "/stream/{id}",
            "Wait for all parts of a job's output",
            &[],
        ),
        route("POST", "/cancel/{id}", "Cancel a job", &[]),
        route("GET", "/health", "Get the number of jobs and workers", &[]),
    ],
};

/// Runpod's platform API.
pub(super) static RUNPOD_PLATFORM: RouteTable = RouteTable {
    api: "runpod",
    title: "Runpod, platform API",
    description: "Runpod's API for endpoints: clients submit jobs, workers fetch them.",
    routes: &[
        route(
            "POST",
            "/v2/{endpoint}/run",
            "Start a job",
            &[
                ("input", "the input of the handler"),
                ("webhook", "the URL that receives the end of the job"),
                (
                    "policy",
                    "the limits of the job: executionTimeout, ttl, lowPriority",
                ),
            ],
        ),
        route(
            "POST",
            "/v2/{endpoint}/runsync",
            "Run a job and wait for its end, for a time",
            &[
                ("input", "the input of the handler"),
                ("webhook", "the URL that receives the end of the job"),
                (
                    "policy",
                    "the limits of the job: executionTimeout, ttl, lowPriority",
                ),
            ],
        ),
        route(
            "GET",
            "/v2/{endpoint}/status/{id}",
            "Get the status of a job",
            &[],
        ),
        route(
            "GET",
            "/v2/{endpoint}/status-sync/{id}",
            "Wait for the end of a job, for a time",
            &[],
        ),
        route(
            "GET",
            "/v2/{endpoint}/stream/{id}",
            "Get the next parts of a job's output",
            &[],
        ),
        route("POST", "/v2/{endpoint}/cancel/{id}", "Cancel a job", &[]),
        route(
            "POST",
            "/v2/{endpoint}/retry/{id}",
            "Run a failed job again",
            &[],
        ),
        route(
            "POST",
            "/v2/{endpoint}/purge-queue",
            "Remove all waiting jobs",
            &[],
        ),
        route(
            "GET",
            "/v2/{endpoint}/health",
            "Get the number of jobs and workers",
            &[],
        ),
        route(
            "GET",
            "/v2/{endpoint}/requests",
            "List the jobs of the endpoint",
            &[],
        ),
        route("GET", "/v2/{endpoint}/batch", "List batches", &[]),
        route(
            "POST",
            "/v2/{endpoint}/batch",
            "Create a batch of requests",
            &[("name", "the name"), ("requests", "the requests")],
        ),
        route("GET", "/v2/{endpoint}/batch/{id}", "Get a batch", &[]),
        route(
            "PUT",
            "/v2/{endpoint}/batch/{id}",
            "Rename a batch",
            &[("name", "the name")],
        ),
        route(
            "GET",
            "/v2/{endpoint}/batch/{id}/requests",
            "List the requests of a batch",
            &[],
        ),
        route(
            "POST",
            "/v2/{endpoint}/batch/{id}/requests",
            "Add requests to a batch",
            &[("requests", "the requests")],
        ),
        route(
            "PUT",
            "/v2/{endpoint}/batch/{id}/requests/{request}",
            "Change a request of a batch",
            &[("input", "the input of the handler")],
        ),
        route(
            "DELETE",
            "/v2/{endpoint}/batch/{id}/requests/{request}",
            "Remove a request of a batch",
            &[],
        ),
        route(
            "POST",
            "/v2/{endpoint}/batch/{id}/finalize",
            "Run the requests of a batch",
            &[],
        ),
        route(
            "POST",
            "/v2/{endpoint}/batch/{id}/cancel",
            "Cancel a batch",
            &[],
        ),
        route(
            "POST",
            "/v2/{endpoint}/openai/{*route}",
            "Send a request of OpenAI's API to a worker",
            &[],
        ),
        route(
            "GET",
            "/v2/{endpoint}/job-take/{worker}",
            "Worker: fetch a job",
            &[],
        ),
        route(
            "GET",
            "/v2/{endpoint}/job-take-batch/{worker}",
            "Worker: fetch several jobs",
            &[],
        ),
        route(
            "POST",
            "/v2/{endpoint}/job-done/{worker}/{id}",
            "Worker: report the end of a job",
            &[],
        ),
        route(
            "POST",
            "/v2/{endpoint}/job-stream/{worker}/{id}",
            "Worker: report a part of a job's output",
            &[],
        ),
        route(
            "GET",
            "/v2/{endpoint}/job-stop/{worker}",
            "Worker: fetch the jobs to stop",
            &[],
        ),
        route(
            "GET",
            "/v2/{endpoint}/ping/{worker}",
            "Worker: send a heartbeat",
            &[],
        ),
        route("GET", "/admin/endpoints", "List endpoints", &[]),
        route(
            "POST",
            "/admin/endpoints",
            "Create an endpoint",
            &[("name", "the name")],
        ),
        route(
            "POST",
            "/admin/endpoints/{endpoint}/remove",
            "Remove an endpoint",
            &[("force", "whether its jobs are canceled")],
        ),
        route(
            "GET",
            "/admin/endpoints/{endpoint}/env",
            "Get the environment of a new worker",
            &[],
        ),
    ],
};

/// The admin API.
pub(super) static ADMIN: RouteTable = RouteTable {
    api: "admin",
    title: "Operation",
    description: "The admin API and the metrics.",
    routes: &[
        route("GET", "/admin/models", "List models with their health", &[]),
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
        route("GET", "/admin/jobs", "List jobs, open ones first", &[]),
        route(
            "GET",
            "/admin/jobs/{account}/{id}",
            "Get a job with its logs",
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

/// The APIs of a router, whose paths are matched by hand (`gateway/route.rs`).
pub(super) static ROUTER: [RouteTable; 4] = [
    RouteTable {
        api: "openai",
        title: "OpenAI",
        description: "OpenAI's API in front of the backends. Other paths below `/v1/` are passed on unchanged.",
        routes: &[
            route("GET", "/v1/models", "List models", &[]),
            route("GET", "/v1/models/{*id}", "Get a model", &[]),
            route(
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
            ),
            route(
                "POST",
                "/v1/completions",
                "Continue a text",
                &[
                    ("model", "the name of the model"),
                    ("prompt", "the text to continue"),
                    ("stream", "whether the answer is sent in parts"),
                    ("max_tokens", "the length of the answer"),
                ],
            ),
            route(
                "POST",
                "/v1/embeddings",
                "Compute embeddings of texts",
                &[
                    ("model", "the name of the model"),
                    ("input", "a text or a list of texts"),
                ],
            ),
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
