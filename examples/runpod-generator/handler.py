"""Each `yield` is a part of the stream; the output is the list of all parts."""

import runpod


def handler(job):
    for word in job["input"].get("text", "the tide is on").split():
        yield word.upper()


runpod.serverless.start({"handler": handler, "return_aggregate_stream": True})
