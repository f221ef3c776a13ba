//! The paths of Runpod's local API and of its platform API.

use super::{RouteTable, route};

/// Runpod's local API.
pub(in crate::ui::api_docs) static RUNPOD_LOCAL: RouteTable = RouteTable {
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
pub(in crate::ui::api_docs) static RUNPOD_PLATFORM: RouteTable = RouteTable {
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
