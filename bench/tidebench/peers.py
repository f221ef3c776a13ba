"""How each peer is started for each kind of model, and where it answers."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tidebench.processes import Command

SLOTS = 32


class Kind(Enum):
    """What the model does; the value is the folder in `bench/models`."""

    ECHO = "echo"
    ECHO_ASYNC = "echo-async"
    STREAM = "stream"
    BATCH = "batch"


@dataclass(frozen=True)
class Peer(ABC):
    """A server that runs the benchmark models."""

    name: str
    path = "/predictions"
    """Where predictions are posted."""
    has_webhooks = False
    kinds = frozenset(Kind)
    """What it can serve."""

    @abstractmethod
    def command(self, kind: Kind, port: int) -> Command:
        """How it is started."""


@dataclass(frozen=True)
class Tidegate(Peer):
    binary: Path
    models: Path
    has_webhooks = True

    def command(self, kind: Kind, port: int) -> Command:
        model = self.models / kind.value
        # As many requests as mosec lets wait; by default two batches are accepted.
        queue = ("--queue", "1024") if kind is Kind.BATCH else ()
        argv = (self.binary, "serve", model, "--port", str(port), *queue)
        # The receiver of the webhooks is on this machine. The peers forget everything when they end, so
        # here tidegate does, too; what it costs to write jobs down is measured by bench/queue.
        env = environment() | {"TIDEGATE_ALLOW_PRIVATE_NETWORKS": "127.0.0.0/8", "TIDEGATE_DATA_DIR": "none"}
        return Command(argv, model, env)


@dataclass(frozen=True)
class Cog(Peer):
    python: Path
    models: Path
    has_webhooks = True
    # It has no batches: a model that sleeps 10 ms gives 100 answers per second.
    kinds = frozenset(Kind) - {Kind.BATCH}

    def command(self, kind: Kind, port: int) -> Command:
        env = environment()
        # Its worker is plain `python`.
        env["PATH"] = f"{self.python.parent}:{env['PATH']}"
        env["PORT"] = str(port)
        env["COG_PREDICT_TYPE_STUB"] = "predict.py:Predictor"
        if kind is Kind.ECHO_ASYNC:
            env["COG_MAX_CONCURRENCY"] = str(SLOTS)
        argv = (self.python, "-m", "cog.server.http", "--host", "127.0.0.1")
        return Command(argv, self.models / kind.value, env)


@dataclass(frozen=True)
class Mosec(Peer):
    python: Path
    services: Path
    path = "/inference"

    def command(self, kind: Kind, port: int) -> Command:
        service = {Kind.STREAM: "stream.py", Kind.BATCH: "batch.py"}.get(kind, "echo.py")
        # Its default limit is 3 s from the first byte, which a loaded machine can exceed.
        argv = (self.python, self.services / service, "--port", str(port), "--timeout", "20000")
        return Command((*argv, "--address", "127.0.0.1"), self.services, environment())


@dataclass(frozen=True)
class LitServe(Peer):
    python: Path
    services: Path
    path = "/predict"
    kinds = frozenset({Kind.BATCH})

    def command(self, kind: Kind, port: int) -> Command:
        return Command((self.python, self.services / "batch.py", str(port)), self.services, environment())


@dataclass(frozen=True)
class FastApi(Peer):
    python: Path
    application: Path
    kinds = frozenset({Kind.ECHO, Kind.ECHO_ASYNC})

    def command(self, kind: Kind, port: int) -> Command:
        argv = (self.python, "-m", "uvicorn", "echo:app", "--port", str(port), "--no-access-log")
        return Command((*argv, "--log-level", "warning"), self.application, environment())


@dataclass(frozen=True)
class Floor(Peer):
    binary: Path
    python: Path
    loop: Path
    kinds = frozenset(Kind) - {Kind.BATCH}

    def command(self, kind: Kind, port: int) -> Command:
        loop = {Kind.ECHO: "sync", Kind.ECHO_ASYNC: "async", Kind.STREAM: "stream"}[kind]
        sockets = SLOTS if kind is Kind.ECHO_ASYNC else 1
        argv = (self.binary, "--port", str(port), "--kind", loop, "--sockets", str(sockets))
        python = ("--python", self.python, "--loop", self.loop)
        return Command((*argv, *python), self.loop.parent, environment())


def environment() -> dict[str, str]:
    """Ours, without what would lead a server to other code than it was installed with."""
    foreign = ("PYTHON", "VIRTUAL_ENV", "TIDEGATE", "COG_", "MOSEC_", "PORT", "RUST_LOG")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
