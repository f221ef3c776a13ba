import asyncio

import runpod


async def handler(job):
    for number in range(job["input"].get("count", 3)):
        await asyncio.sleep(0)
        if number == job["input"].get("raise"):
            raise ValueError("no more")
        yield number


runpod.serverless.start({"handler": handler})
