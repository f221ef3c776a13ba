"""The tables: medians per peer, and ratios with their targets.

A ratio is taken within each round, where peers ran one after the other on the same machine in the
same mood, and then the median of the rounds; the range beside it shows how far to trust it.
"""

import statistics
from dataclasses import dataclass
from enum import Enum

from tidebench.workloads import BATCH_CONNECTIONS, Numbers

Rounds = dict[str, list[Numbers]]
"""By peer: what each round gave."""


class Better(Enum):
    MORE = ">="
    LESS = "<="

    def holds(self, value: float, limit: float) -> bool:
        return value >= limit if self is Better.MORE else value <= limit


@dataclass(frozen=True)
class Target:
    """What tidegate should reach. Against a peer it is a factor, without one a number."""

    peer: str | None
    limit: float
    is_aim: bool = False
    """Beyond the issue's target: where we would like to be."""


@dataclass(frozen=True)
class Row:
    key: str
    label: str
    better: Better
    targets: tuple[Target, ...] = ()


def batch_rows(connections: int) -> tuple[Row, ...]:
    name = f"batch{connections}"
    plural = "s" if connections > 1 else ""
    targets = (Target("mosec", 1.0),) if connections == 32 else ()
    return (
        Row(f"{name}.rps", f"10 ms per batch, {connections} connection{plural}, req/s", Better.MORE, targets),
        Row(f"{name}.p50_ms", "  p50, ms", Better.LESS),
        Row(f"{name}.p99_ms", "  p99, ms", Better.LESS),
        Row(f"{name}.cpu_us", "  server CPU per request, µs", Better.LESS),
    )


ROWS = (
    Row(
        "echo1.rps",
        "echo, 1 connection, req/s",
        Better.MORE,
        (Target("cog", 3.5), Target("mosec", 1.0), Target("floor", 0.8, is_aim=True)),
    ),
    Row("echo1.cpu_us", "  server CPU per request, µs", Better.LESS),
    Row("echo8.rps", "echo, 8 connections, req/s", Better.MORE),
    Row("echo8.cpu_us", "  server CPU per request, µs", Better.LESS),
    Row(
        "echo32.rps",
        "echo, 32 connections, req/s",
        Better.MORE,
        (Target("cog", 6.0), Target("mosec", 2.0), Target("floor", 0.6, is_aim=True)),
    ),
    Row("echo32.cpu_us", "  server CPU per request, µs", Better.LESS),
    Row(
        "big1.mbps",
        "1 MiB in and out, 1 connection, MB/s",
        Better.MORE,
        (Target("cog", 3.0), Target("fastapi", 1.0)),
    ),
    Row("big1.cpu_us", "  server CPU per request, µs", Better.LESS),
    Row(
        "big4.mbps",
        "1 MiB in and out, 4 connections, MB/s",
        Better.MORE,
        (Target("cog", 3.0), Target("fastapi", 1.0)),
    ),
    Row("big4.cpu_us", "  server CPU per request, µs", Better.LESS),
    *(row for connections in BATCH_CONNECTIONS for row in batch_rows(connections)),
    Row(
        "stream.tokens",
        "1,000-token stream, tokens/s",
        Better.MORE,
        (Target("cog", 4.0), Target("floor", 0.5, is_aim=True)),
    ),
    Row("stream.first_ms", "  first token, ms", Better.LESS, (Target(None, 2.0),)),
    Row("stream.cpu_us", "  server CPU per token, µs", Better.LESS),
    Row("webhook.rps", "async + webhook, completions/s", Better.MORE, (Target("cog", 8.0),)),
    Row("webhook.p50_ms", "  p50, ms", Better.LESS),
    Row("webhook.cpu_us", "  server CPU per completion, µs", Better.LESS),
    Row("cold.s", "cold start, s", Better.LESS, (Target("cog", 0.7),)),
    Row("memory.mib", "memory after 1,000 requests, MiB PSS", Better.LESS, (Target("cog", 0.6),)),
    Row("memory.private_mib", "  private part, MiB", Better.LESS),
)
LABEL = max(len(row.label) for row in ROWS)


def median(rounds: list[Numbers], key: str) -> float | None:
    values = [numbers[key] for numbers in rounds if key in numbers]
    return statistics.median(values) if values else None


def ratios(rounds: Rounds, key: str, peer: str, subject: str = "tidegate") -> list[float]:
    """Subject to peer, for each round that has both."""
    pairs = zip(rounds.get(subject, []), rounds.get(peer, []), strict=False)
    return [ours[key] / theirs[key] for ours, theirs in pairs if theirs.get(key) and key in ours]


def medians_table(rounds: Rounds) -> str:
    peers = list(rounds)
    lines = [f"{'medians':<{LABEL}}" + "".join(f"{peer:>12}" for peer in peers)]
    for row in ROWS:
        values = [median(rounds[peer], row.key) for peer in peers]
        if any(value is not None for value in values):
            cells = "".join(f"{number(value):>12}" for value in values)
            lines.append(f"{row.label:<{LABEL}}{cells}")
    return "\n".join(lines)


def ratios_table(rounds: Rounds) -> str:
    peers = [peer for peer in rounds if peer != "tidegate"]
    heads = "".join(f"{'/ ' + peer:>23}" for peer in peers)
    lines = [f"{'tidegate':<{LABEL}}{heads}   targets"]
    for row in ROWS:
        cells = "".join(f"{ratio_cell(ratios(rounds, row.key, peer)):>23}" for peer in peers)
        if cells.strip():
            verdicts = ", ".join(filter(None, (verdict(rounds, row, t) for t in row.targets)))
            lines.append(f"{row.label:<{LABEL}}{cells}   {verdicts}".rstrip())
    return "\n".join(lines)


def ratio_cell(values: list[float]) -> str:
    if not values:
        return ""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def verdict(rounds: Rounds, row: Row, target: Target) -> str | None:
    """`ok` or `MISS`; an aim that is not reached is only told."""
    if target.peer is None:
        reached = median(rounds.get("tidegate", []), row.key)
    else:
        found = ratios(rounds, row.key, target.peer)
        reached = statistics.median(found) if found else None
    if reached is None:
        return None
    what = f"{row.better.value} {target.limit:g}" + (f" x {target.peer}" if target.peer else "")
    if row.better.holds(reached, target.limit):
        return f"{'aim' if target.is_aim else ''} {what}: ok".strip()
    return f"aim {what}: not yet" if target.is_aim else f"{what}: MISS"


def number(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
