import asyncio
import os

import runpod

together = 0


async def handler(job):
    global together
    together += 1
    try:
        for _ in range(500):
            if together >= job["input"].get("together", 1):
                break
            await asyncio.sleep(0.01)
        if "raise" in job["input"]:
            raise KeyError(job["input"]["raise"])
        if "sleep" in job["input"]:
            await asyncio.sleep(job["input"]["sleep"])
        if "refresh" in job["input"]:
            return {"refresh_worker": True, "pid": os.getpid()}
        return {"together": together}
    finally:
        await asyncio.sleep(0)
        together -= 1


runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: current + 2})
