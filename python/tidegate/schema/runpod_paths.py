"""The description of a script with a handler: any input, any output, and Runpod's local API.

What the handler takes and gives is known to the handler alone.
"""

from __future__ import annotations

from .document import Json

OUTPUT: Json = {"title": "Output"}

_SUMMARIES = (
    ("/run", "post", "Bring a job; its id comes back"),
    ("/runsync", "post", "Bring a job and wait for its result"),
    ("/status/{job_id}", "get", "Show a job as it is now"),
    ("/status/{job_id}", "post", "Wait for the result of a job"),
    ("/stream/{job_id}", "get", "Show what a generator has given since the last time"),
    ("/stream/{job_id}", "post", "Wait for everything that a generator gives"),
    ("/cancel/{job_id}", "post", "Stop a job"),
    ("/health", "get", "Count jobs and workers"),
)


def add_paths(document: Json) -> None:
    """Add the paths of Runpod's local API to a model's document."""
    paths = document["paths"]
    if not isinstance(paths, dict):
        raise TypeError("a document has paths")
    for path, method, summary in _SUMMARIES:
        name = path.split("/")[1]
        operation: Json = {
            "summary": summary,
            "operationId": f"runpod_{name}_{method}",
            "tags": ["Runpod"],
            "responses": {"200": {"description": "Successful Response", "content": {"application/json": {}}}},
        }
        if "{" in path:
            operation["parameters"] = [
                {
                    "in": "path",
                    "name": "job_id",
                    "required": True,
                    "schema": {"title": "Job Id", "type": "string"},
                }
            ]
        elif method == "post":
            operation["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": _REQUEST}},
            }
        paths.setdefault(path, {})[method] = operation


_REQUEST: Json = {
    "title": "RunpodRequest",
    "type": "object",
    "required": ["input"],
    "properties": {
        "input": {"title": "Input", "type": "object", "additionalProperties": True},
        "webhook": {"title": "Webhook", "type": "string"},
    },
}
