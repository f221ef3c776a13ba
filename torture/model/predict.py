"""A model that does what its input says, and keeps a journal of what it did.

The journal is a file beside this one, or the file that TORTURE_JOURNAL names: a line when an
execution begins and one when it ends, each written with a single `write` to a descriptor in append
mode, so that lines of several processes do not mix. It shows what really ran, independently of the
server.
"""

import asyncio
import contextlib
import ctypes
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import cog
from cog import BasePredictor, Path

JOURNAL = os.environ.get(
    "TORTURE_JOURNAL", os.path.join(os.path.dirname(os.path.abspath(__file__)), "journal")
)
NUMBERS = itertools.count(1)


def note(what: str, job: "Execution", how: str) -> None:
    line = {"e": what, "n": job.nonce, "x": job.id, "how": how, "pid": os.getpid(), "t": time.monotonic()}
    journal = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(journal, (json.dumps(line) + "\n").encode())
    finally:
        os.close(journal)


class Execution:
    """One execution in the journal; it ends once. Its id is in its output."""

    def __init__(self, nonce: str) -> None:
        self.nonce = nonce
        self.id = f"x{os.getpid()}q{next(NUMBERS)}e"
        self.begun = False
        self.over = False

    def begin(self, behave: str) -> None:
        # A cancel may come at any point: an end without a begin is better than the opposite.
        self.begun = True
        note("begin", self, behave)

    def end(self, how: str) -> None:
        if self.begun and not self.over:
            # In this order, for the same reason: a second end is not counted.
            note("end", self, how)
            self.over = True

    def mark(self, value: Any) -> Any:
        """An output value with the id of this execution."""
        return {**value, "x": self.id} if isinstance(value, dict) else f"{value} {self.id}"

    def broken(self, error: BaseException) -> None:
        self.end("fail" if isinstance(error, Exception) else "canceled")


# The steps of a behaviour: ("sleep", seconds) or ("give", value).
Steps = Generator[tuple[str, Any], None, None]


def ok(job: Execution, seconds: float, count: int) -> Steps:
    yield "give", f"{job.nonce} 0"


def sleep(job: Execution, seconds: float, count: int) -> Steps:
    yield "sleep", seconds
    yield "give", f"{job.nonce} slept"


def fail(job: Execution, seconds: float, count: int) -> Steps:
    print(f"{job.nonce} is about to fail")
    yield "sleep", seconds
    raise RuntimeError(f"{job.nonce} fails on purpose")


def prints(job: Execution, seconds: float, count: int) -> Steps:
    for number in range(count):
        print(f"{job.nonce} line {number}", file=(sys.stdout, sys.stderr)[number % 2])
        yield "sleep", seconds / count
    print(f"{job.nonce} without a line break", end="")
    yield "give", f"{job.nonce} printed"


def late(job: Execution, seconds: float, count: int) -> Steps:
    """A thread prints after the end of its job; those lines belong to no job."""

    def talk() -> None:
        for number in range(count):
            time.sleep(0.02)
            print(f"{job.nonce} late {number}")

    threading.Thread(target=talk, daemon=True).start()
    yield "give", f"{job.nonce} has a thread"


def flood(job: Execution, seconds: float, count: int) -> Steps:
    for number in range(count * 100):
        print(f"{job.nonce} flood {number:8} " + "." * 60)
    yield "give", f"{job.nonce} flooded"


def chunks(job: Execution, seconds: float, count: int) -> Steps:
    for number in range(count):
        yield "give", f"{job.nonce} {number}"
        yield "sleep", seconds / count


def chunks_then_fail(job: Execution, seconds: float, count: int) -> Steps:
    yield from chunks(job, seconds, count)
    raise RuntimeError(f"{job.nonce} fails half way")


def endless(job: Execution, seconds: float, count: int) -> Steps:
    """Runs until it is stopped, at most 25 s, so that a lost cancel does not block the run."""
    number, until = 0, time.monotonic() + 25
    while time.monotonic() < until:
        yield "give", f"{job.nonce} {number}"
        yield "sleep", 0.02
        number += 1


def leave(job: Execution, seconds: float, count: int) -> Steps:
    yield "sleep", seconds
    job.end("crash")
    os._exit(3)


def segfault(job: Execution, seconds: float, count: int) -> Steps:
    yield "sleep", seconds
    job.end("crash")
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
    yield "sleep", 5


def garbage(job: Execution, seconds: float, count: int) -> Steps:
    """Writes garbage to every descriptor, including the socket to the server."""
    yield "sleep", seconds
    job.end("crash")
    for descriptor in range(3, 64):
        # A cancel may have left the journal open.
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}") == JOURNAL:
                continue
            os.write(descriptor, b"\xff\x00nonsense" * 8)
    yield "sleep", 5
    os._exit(4)


def swallow(job: Execution, seconds: float, count: int) -> Steps:
    """Ignores cancels and finishes its work."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            yield "sleep", 0.05
        except GeneratorExit:
            raise
        except BaseException:
            print(f"{job.nonce} ignores a cancel")
    yield "give", f"{job.nonce} finished"


def hold_gil(job: Execution, seconds: float, count: int) -> Steps:
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    yield "give", f"{job.nonce} held"


def file(job: Execution, seconds: float, count: int) -> Steps:
    path = os.path.join(tempfile.mkdtemp(), "out.txt")
    with open(path, "w") as out:
        out.write(job.nonce)
    yield "give", {"nonce": job.nonce, "file": Path(path)}


def large(job: Execution, seconds: float, count: int) -> Steps:
    yield "give", {"nonce": job.nonce, "much": "x" * (count * 1024)}


def fork(job: Execution, seconds: float, count: int) -> Steps:
    if os.fork() == 0:
        time.sleep(8)
        os._exit(0)
    yield "give", f"{job.nonce} forked"


def daemon(job: Execution, seconds: float, count: int) -> Steps:
    if os.fork() == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    yield "give", f"{job.nonce} has a daemon"


def gate(job: Execution, seconds: float, count: int) -> Steps:
    """Holds its slot until a file exists."""
    until = time.monotonic() + seconds
    path = os.path.join(os.path.dirname(JOURNAL), "gate")
    while not os.path.exists(path) and time.monotonic() < until:
        yield "sleep", 0.01
    yield "give", f"{job.nonce} passed"


def steps(job: Execution, behave: str, seconds: float, count: int) -> Steps:
    return globals()[behave](job, seconds, count)


def thrown(script: Steps, error: BaseException) -> "tuple[str, Any] | None":
    """Raise an exception where the behaviour slept; returns its next step, if it continues."""
    try:
        return script.throw(error)
    except StopIteration:
        return None


def work(nonce: str, behave: str, seconds: float, count: int) -> Iterator[Any]:
    """Run the steps of a behaviour in sync code."""
    job = Execution(nonce)
    try:
        job.begin(behave)
        script = steps(job, behave, seconds, count)
        step = next(script, None)
        while step is not None:
            what, value = step
            try:
                if what == "sleep":
                    time.sleep(value)
            except BaseException as error:
                step = thrown(script, error)
                continue
            if what == "give":
                yield job.mark(value)
            step = next(script, None)
        job.end("ok")
    except BaseException as error:
        job.broken(error)
        raise


async def work_async(nonce: str, behave: str, seconds: float, count: int) -> AsyncIterator[Any]:
    """Run the steps of a behaviour on the event loop."""
    job = Execution(nonce)
    try:
        job.begin(behave)
        script = steps(job, behave, seconds, count)
        step = next(script, None)
        while step is not None:
            what, value = step
            try:
                if what == "sleep":
                    await asyncio.sleep(value)
            except BaseException as error:
                step = thrown(script, error)
                continue
            if what == "give":
                yield job.mark(value)
            step = next(script, None)
        job.end("ok")
    except BaseException as error:
        job.broken(error)
        raise


class Sync(BasePredictor):
    """Returns one value; does not stream. Its input may be large (`padding`)."""

    def predict(
        self, nonce: str, behave: str, seconds: float = 0.0, count: int = 1, padding: str = ""
    ) -> Any:
        values = list(work(nonce, behave, seconds, count))
        return values[0] if len(values) == 1 else values


class Stream(BasePredictor):
    """A sync generator."""

    @cog.streaming
    def predict(self, nonce: str, behave: str, seconds: float = 0.0, count: int = 1) -> Iterator[Any]:
        yield from work(nonce, behave, seconds, count)


class Async(BasePredictor):
    """Concurrent async functions that return one value."""

    @cog.streaming
    async def predict(self, nonce: str, behave: str, seconds: float = 0.0, count: int = 1) -> Any:
        values = [value async for value in work_async(nonce, behave, seconds, count)]
        return values[0] if len(values) == 1 else values


class AsyncStream(BasePredictor):
    """Concurrent async generators."""

    @cog.streaming
    async def predict(
        self, nonce: str, behave: str, seconds: float = 0.0, count: int = 1
    ) -> AsyncIterator[Any]:
        async for value in work_async(nonce, behave, seconds, count):
            yield value


class Checked(BasePredictor):
    """Like `Sync`, with a health check of the model."""

    def healthcheck(self) -> bool:
        return True

    def predict(self, nonce: str, behave: str, seconds: float = 0.0, count: int = 1) -> Any:
        values = list(work(nonce, behave, seconds, count))
        return values[0] if len(values) == 1 else values
