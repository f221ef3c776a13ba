import runpod
from runpod.serverless.utils.rp_debugger import FunctionTimer, LineTimer


@FunctionTimer
def timed():
    return 1


def handler(job):
    with LineTimer("line"):
        timed()
    return job["input"].get("result", {"ok": True})


runpod.serverless.start({"handler": handler})
