import os
import time

import runpod


def handler(job):
    wanted = job["input"]
    for number in range(wanted.get("count", 3)):
        if number == wanted.get("raise"):
            raise ValueError("no more")
        if number == wanted.get("error"):
            yield {"error": "item"}
        yield {"number": number}
        while number == wanted.get("stop") and not os.path.exists(wanted["gate"]):
            time.sleep(0.01)


runpod.serverless.start({"handler": handler, "return_aggregate_stream": True})
