"""The smallest handler: one job in, one result out, with a progress update on the way."""

import runpod


def handler(job):
    words = job["input"].get("text", "").split()
    if not words:
        return {"error": 'give some text: {"input": {"text": "the tide"}}'}
    runpod.serverless.progress_update(job, f"{len(words)} words to go")
    return {"reversed": " ".join(reversed(words)), "words": len(words)}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler})
