"""Adds Runpod's local API to the document of a script with a handler.

Such a script accepts any input and returns any output: only the handler knows their types.
"""

from __future__ import annotations

from .document import Json

OUTPUT: Json = {"title": "Output"}

_SUMMARIES = (
    ("/run", "post", "Submit a job and return its id"),
    ("/runsync", "post", "Submit a job and wait for its result"),
    ("/status/{job_id}", "get", "Return the current state of a job"),
    ("/status/{job_id}", "post", "Wait for the result of a job"),
    ("/stream/{job_id}", "get", "Return the items that a generator has yielded since the last request"),
    ("/stream/{job_id}", "post", "Wait for all items of a generator"),
    ("/cancel/{job_id}", "post", "Cancel a job"),
    ("/health", "get", "Count jobs and workers"),
)


def add_paths(document: Json) -> None:
    """Add the paths of Runpod's local API to a model's document."""
    paths = document["paths"]
    if not isinstance(paths, dict):
        raise TypeError("the document has no paths")
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
