"""What is measured: each workload turns one running server into a few numbers."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidebench import load, webhooks
from tidebench.client import Refused
from tidebench.peers import Kind, Peer
from tidebench.server import Server

MIB = 1024 * 1024
TOKENS = 1000
BATCH_CONNECTIONS = (1, 8, 32, 64)
REQUESTS_BEFORE_MEMORY = 1000
RETRY_S = 0.002

Numbers = dict[str, float]


@dataclass(frozen=True)
class Effort:
    """How long one measurement takes."""

    seconds: float
    streams: int


@dataclass(frozen=True)
class Workload:
    """One thing to measure on servers that stay up; peers take turns."""

    name: str
    kind: Kind
    measure: Callable[[Server, Effort], Numbers]
    alone: bool = False
    """Each measurement starts a server of its own, while no other runs."""
    needs_webhooks: bool = False
    without: tuple[str, ...] = ()
    """Peers that cannot do it."""

    def fits(self, peer: Peer) -> bool:
        if peer.name in self.without:
            return False
        return self.kind in peer.kinds and (peer.has_webhooks or not self.needs_webhooks)


def echo(connections: int) -> Callable[[Server, Effort], Numbers]:
    def measure(server: Server, effort: Effort) -> Numbers:
        before = server.tree.cpu_us()
        result = load.run(server, connections, effort.seconds)
        spent = server.tree.cpu_us() - before
        refused = {f"echo{connections}.refused": float(result.refused)} if result.refused else {}
        return {
            f"echo{connections}.rps": result.per_second,
            f"echo{connections}.cpu_us": spent / max(1, result.answered),
            **refused,
        }

    return measure


def big(body: Path, connections: int) -> Callable[[Server, Effort], Numbers]:
    def measure(server: Server, effort: Effort) -> Numbers:
        before = server.tree.cpu_us()
        result = load.run(server, connections, effort.seconds, body)
        spent = server.tree.cpu_us() - before
        return {
            # 1 MiB comes back for each that goes in; it is counted once.
            f"big{connections}.mbps": result.per_second * MIB / 1e6,
            f"big{connections}.cpu_us": spent / max(1, result.answered),
        }

    return measure


def batch(connections: int) -> Callable[[Server, Effort], Numbers]:
    def measure(server: Server, effort: Effort) -> Numbers:
        before = server.tree.cpu_us()
        result = load.run(server, connections, effort.seconds)
        spent = server.tree.cpu_us() - before
        return {
            f"batch{connections}.rps": result.per_second,
            f"batch{connections}.p50_ms": result.p50_us / 1e3,
            f"batch{connections}.p99_ms": result.p99_us / 1e3,
            f"batch{connections}.cpu_us": spent / max(1, result.answered),
        }

    return measure


def stream(server: Server, effort: Effort) -> Numbers:
    wire = server.wire(headers={"Accept": "text/event-stream"})
    firsts: list[float] = []
    wholes: list[float] = []
    before = server.tree.cpu_us()
    with server.connect() as connection:
        while len(firsts) < effort.streams:
            answer = connection.stream(wire, b"token0 ")
            if isinstance(answer, Refused):  # cog has not freed its slot yet
                time.sleep(RETRY_S)
                continue
            if answer.body.count(b"token999 ") == 0:
                raise RuntimeError(f"{server.peer.name} did not send its last token")
            firsts.append(answer.first_s)
            wholes.append(answer.whole_s)
    spent = server.tree.cpu_us() - before
    return {
        "stream.tokens": TOKENS / statistics.median(wholes),
        "stream.first_ms": statistics.median(firsts) * 1e3,
        "stream.cpu_us": spent / (TOKENS * len(wholes)),
    }


def hooks(server: Server, effort: Effort) -> Numbers:
    before = server.tree.cpu_us()
    result = webhooks.measure(server)
    spent = server.tree.cpu_us() - before
    return {
        "webhook.rps": result.per_second,
        "webhook.p50_ms": result.p50_ms,
        "webhook.cpu_us": spent / webhooks.COUNT,
    }


def life(server: Server, effort: Effort) -> Numbers:
    """Cold start and memory: the server has just begun to answer."""
    wire = server.wire()
    with server.connect() as connection:
        for _ in range(REQUESTS_BEFORE_MEMORY):
            connection.post(wire)
    return {
        "cold.s": server.cold_start_s,
        "memory.mib": server.tree.pss_kib() / 1024,
        "memory.private_mib": server.tree.private_kib() / 1024,
    }


def workloads(body: Path) -> list[Workload]:
    return [
        Workload("echo1", Kind.ECHO, echo(1)),
        Workload("echo8", Kind.ECHO_ASYNC, echo(8)),
        Workload("echo32", Kind.ECHO_ASYNC, echo(32)),
        Workload("big1", Kind.ECHO, big(body, 1)),
        # The loop of the floor does not answer four of them at once.
        Workload("big4", Kind.ECHO_ASYNC, big(body, 4), without=("floor",)),
        *(
            Workload(f"batch{connections}", Kind.BATCH, batch(connections))
            for connections in BATCH_CONNECTIONS
        ),
        Workload("stream", Kind.STREAM, stream),
        Workload("webhook", Kind.ECHO_ASYNC, hooks, needs_webhooks=True),
        Workload("life", Kind.ECHO, life, alone=True),
    ]
