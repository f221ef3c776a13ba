import os
import time
from datetime import date
from decimal import Decimal
from uuid import UUID

import runpod

RESULTS = {
    "text": "x",
    "number": 1.5,
    "nothing": None,
    "true": True,
    "list": [1, {"a": None}],
    "wrapped": {"output": 1},
    "falsy error": {"error": "", "k": 1},
    "error": {"error": "no"},
    "error and more": {"error": "no", "k": 1},
    "null inside": {"a": None, "b": [None]},
    "long integer": {"n": [2**70, -(10**400)]},
    "no number": {"n": [float("nan"), float("-inf")]},
    "other types": [Decimal("1.5"), Decimal("3"), UUID(int=5), date(2026, 1, 2)],
}


def handler(job):
    wanted = job["input"]
    if "result" in wanted:
        result = RESULTS[wanted["result"]]
        return dict(result) if isinstance(result, dict) else result
    if "raise" in wanted:
        raise ValueError(wanted["raise"])
    if "progress" in wanted:
        runpod.serverless.progress_update(job, wanted["progress"])
    if "gate" in wanted:
        while not os.path.exists(wanted["gate"]):
            time.sleep(0.01)
    if "refresh" in wanted:
        return {"refresh_worker": True, "pid": os.getpid()}
    if wanted.get("die"):
        os._exit(3)
    if wanted.get("odd"):
        return {"odd": object()}
    return {"input": wanted, "keys": sorted(job), "name": __name__}


if __name__ == "__main__":
    runpod.serverless.start({"handler": handler})
