"""An empty handler."""

import runpod


def handler(job):  # noqa: ANN001, ANN201
    """Give the job's number back."""
    return job["input"].get("n")


runpod.serverless.start({"handler": handler})
