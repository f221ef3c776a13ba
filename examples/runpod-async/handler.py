"""Four concurrent jobs in one process, and a fitness check that runs before the first job."""

import asyncio
import shutil

import runpod


@runpod.serverless.register_fitness_check
def enough_disk():
    if shutil.disk_usage(".").free < 1_000_000:
        raise RuntimeError("less than a megabyte is free")


async def handler(job):
    seconds = float(job["input"].get("seconds", 0.1))
    await asyncio.sleep(seconds)
    return {"slept": seconds}


runpod.serverless.start({"handler": handler, "concurrency_modifier": lambda current: 4})
