import os
import time

import runpod
import tidegate


@tidegate.batched(max_size=4, group="size")
def handler(jobs):
    for job in jobs:
        runpod.serverless.progress_update(job, f"{job['input'].get('name')} runs")
    for job in jobs:
        while "gate" in job["input"] and not os.path.exists(job["input"]["gate"]):
            time.sleep(0.01)
    return [one(job["input"], len(jobs)) for job in jobs]


def one(wanted, size):
    if "raise" in wanted:
        raise ValueError(wanted["raise"])
    if "error" in wanted:
        return {"error": wanted["error"]}
    if "refresh" in wanted:
        return {"refresh_worker": True, "pid": os.getpid()}
    if "pid" in wanted:
        return os.getpid()
    if "exception" in wanted:
        return ValueError(wanted["exception"])
    return {"name": wanted.get("name"), "of": size}


runpod.serverless.start({"handler": handler})
