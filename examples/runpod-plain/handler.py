"""The smallest handler: one job, one result, one progress update."""

import runpod


def handler(job):
    words = job["input"].get("text", "").split()
    if not words:
        return {"error": 'give some text: {"input": {"text": "the tide"}}'}
    runpod.serverless.progress_update(job, f"{len(words)} words to go")
    return {"reversed": " ".join(reversed(words)), "words": len(words)}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler})
