"""An asynchronous stream, with inputs checked by Runpod's validator."""

import asyncio

import runpod
from runpod.serverless.utils.rp_validator import validate

RULES = {
    "count": {"type": int, "required": False, "default": 3},
    "pause": {"type": float, "required": False, "default": 0.05},
}


async def handler(job):
    checked = validate(job["input"], RULES)
    if "errors" in checked:
        yield {"error": "; ".join(checked["errors"])}
        return
    for number in range(checked["validated_input"]["count"]):
        await asyncio.sleep(checked["validated_input"]["pause"])
        yield {"number": number}


runpod.serverless.start({"handler": handler})
