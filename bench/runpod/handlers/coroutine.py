"""A handler that sleeps for the requested time, and a concurrency limit that is read from a file."""

import asyncio
import pathlib

import runpod

LIMIT = pathlib.Path("limit")


async def handler(job):  # noqa: ANN001, ANN201
    """Wait."""
    await asyncio.sleep(job["input"].get("seconds", 0))


def limit(now):  # noqa: ANN001, ANN201
    """Say how many jobs at once."""
    return int(LIMIT.read_text()) if LIMIT.exists() else 4


runpod.serverless.start({"handler": handler, "concurrency_modifier": limit})
