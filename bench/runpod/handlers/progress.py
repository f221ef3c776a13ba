"""A handler that says 200 times how far it is."""

import runpod


def handler(job):  # noqa: ANN001, ANN201
    """Report 200 steps."""
    for step in range(200):
        runpod.serverless.progress_update(job, step)
    return "done"


runpod.serverless.start({"handler": handler})
