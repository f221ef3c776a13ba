"""A worker with Runpod's own SDK, for the tests of the platform: `platform_worker.py SHAPE [CONCURRENCY]`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import runpod

Job = dict[str, Any]


def plain(job: Job) -> Any:
    """Does what the input says."""
    wish = job["input"]
    if "sleep" in wish:
        _note(wish)
        time.sleep(wish["sleep"])
    if "raise" in wish:
        raise ValueError(wish["raise"])
    if "progress" in wish:
        runpod.serverless.progress_update(job, wish["progress"])
        _until(wish["until"])
    return {"echo": wish, "keys": sorted(job)} if "return" not in wish else wish["return"]


async def coroutine(job: Job) -> Any:
    """Like `plain`, and can be stopped while it waits."""
    wish = job["input"]
    _note(wish)
    try:
        while "until" in wish and not Path(wish["until"]).exists():
            await asyncio.sleep(0.05)
    except asyncio.CancelledError:
        Path(wish["stopped"]).touch()
        raise
    return {"echo": wish}


def generator(job: Job) -> Iterator[Any]:
    """Gives as many parts as are wanted."""
    for number in range(job["input"]["parts"]):
        yield {"part": number}
    if "raise" in job["input"]:
        raise ValueError(job["input"]["raise"])


async def agenerator(job: Job) -> AsyncIterator[Any]:
    """The same, and waits before the last part until a file is there."""
    wish = job["input"]
    for number in range(wish["parts"]):
        if number == wish["parts"] - 1 and "until" in wish:
            while not Path(wish["until"]).exists():
                await asyncio.sleep(0.05)
        yield f"part {number}"


async def openai(job: Job) -> AsyncIterator[Any]:
    """Answers like a worker with a language model."""
    route, wish = job["input"]["openai_route"], job["input"]["openai_input"]
    _note(wish)
    if route == "/v1/models":
        yield {"object": "list", "data": [{"id": "small", "object": "model"}], "asked": wish}
    elif route != "/v1/chat/completions":
        yield {"object": "error", "message": "Invalid route", "code": 404}
    elif "raise" in wish:
        raise ValueError(wish["raise"])
    elif "until" in wish:
        yield 'data: {"first":1}\n\n'
        try:
            while not Path(wish["until"]).exists():
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            if "stopped" in wish:
                Path(wish["stopped"]).touch()
            raise
        yield "data: [DONE]\n\n"
    elif wish.get("stream"):
        yield 'data: {"chunk":1}\n\ndata: {"chunk":2}\n\n'
        yield {"chunk": 3}
        yield [{"chunk": 4}, {"chunk": 5}]
    else:
        yield {"object": "chat.completion", "asked": wish}


def _note(wish: Job) -> None:
    if "began" in wish:
        with Path(wish["began"]).open("a") as file:
            file.write("begun\n")


def _until(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.02)


if __name__ == "__main__":
    shape, concurrency = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
    runpod.serverless.start(
        {
            "handler": globals()[shape.removesuffix("+all")],
            "concurrency_modifier": lambda _: concurrency,
            "return_aggregate_stream": shape.endswith("+all"),
        }
    )
