import asyncio

import runpod

present = 0
met = False


async def handler(job):
    """Waits until as many jobs run at the same time as the input says."""
    global present, met
    present += 1
    for _ in range(1000):
        met = met or present >= job["input"]["together"]
        if met:
            break
        await asyncio.sleep(0.01)
    present -= 1
    return {"met": met}


runpod.serverless.start({"handler": handler})
