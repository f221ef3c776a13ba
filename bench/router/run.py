"""`make bench-router`: the router beside other proxies, in turns on the same machine.

All forward to the same backend on loopback: nginx, which answers with a small JSON document, or
processes that send 50 chunks of server-sent events. For each proxy and kind of request:

- CPU time of the proxy per request, with 16 connections, and requests per second;
- the latency that it adds to that of the backend, with one connection: median and 99th percentile;
- memory without streams, after many requests, and with many silent streams, per stream.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tidebench import load
from tidebench.client import request
from tidebench.processes import Tree
from tidebench.proxies import PATH, CannotMeasure, Place, Proxy, most_requests, nginx, proxies, start
from tidebench.server import free_port

REFERENCE = "vllm-router"
DIRECT = "direct"
STREAM_PROCESSES = 2
STEP_S = 5
"""How long wrk runs between two looks at how many requests there were."""


@dataclass(frozen=True)
class Workload:
    """One kind of request."""

    name: str
    content: str
    stream: bool

    @property
    def body(self) -> str:
        message = {"role": "user", "content": f"{self.content}: what is the height of the tide?"}
        return json.dumps({"model": "bench", "messages": [message], "stream": self.stream})


JSON = Workload("JSON", "json", stream=False)
BURST = Workload("50 chunks at once", "burst", stream=True)
PACED = Workload("50 chunks, 2 ms apart", "paced", stream=True)
SILENT = Workload("silent", "silent", stream=True)


@dataclass
class Found:
    """What the rounds of one proxy gave."""

    cpu_us: list[float] = field(default_factory=list)
    per_second: list[float] = field(default_factory=list)
    p50_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)


Results = dict[str, Found]


def main() -> None:
    options = parse()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    raise_file_limit()
    if options.streams > most_requests():
        sys.exit(f"bench: {options.streams} streams need a higher `ulimit -n`")
    if load.WRK is None:
        sys.exit("bench: wrk is needed: apt-get install wrk")
    with tempfile.TemporaryDirectory(prefix="tidebench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # for nginx, whose processes have another user
        with json_backend(folder) as backend:
            measure(JSON, backend, options, folder)
            after_requests(backend, options, folder)
        with stream_backend(folder) as backend:
            measure(BURST, backend, options, folder)
            measure(PACED, backend, options, folder)
            idle_streams(backend, options, folder)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tidegate-bin", type=Path, required=True, metavar="BIN")
    add("--peers", type=lambda text: text.split(","), default=list(proxies(Path())), metavar="A,B")
    add("--rounds", type=int, default=3, help="how often the proxies take turns")
    add("--seconds", type=int, default=5, help="of each measurement")
    add("--requests", type=int, default=200_000, help="for memory after requests; 0: not measured")
    add("--streams", type=int, default=1000, help="for memory per stream; 0: not measured")
    add("--memory-peers", type=lambda text: text.split(","), default=["tidegate", REFERENCE])
    options = parser.parse_args()
    options.tidegate_bin = options.tidegate_bin.resolve()
    return options


def raise_file_limit() -> None:
    """For this process and all that it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextlib.contextmanager
def json_backend(folder: Path) -> Iterator[Proxy]:
    """nginx with a constant document of about 500 bytes."""
    text = "The tide is high at noon and low in the evening. " * 5
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 12, "completion_tokens": 60, "total_tokens": 72}
    completion = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1, "model": "bench"}
    answer = json.dumps(completion | {"choices": [choice], "usage": usage})
    models = json.dumps({"object": "list", "data": [{"id": "bench", "object": "model"}]})
    port = free_port()
    server = (
        f"default_type application/json; server {{ listen 127.0.0.1:{port}; "
        f"location / {{ return 200 '{models}'; }} location {PATH} {{ return 200 '{answer}'; }} }}"
    )
    argv = nginx(Place(port, 0, folder), server)
    with running(start("json-backend", argv, port, folder, JSON.body.encode())) as backend:
        yield backend


@contextlib.contextmanager
def stream_backend(folder: Path) -> Iterator[Proxy]:
    port = free_port()
    argv = [sys.executable, str(HERE / "stream_backend.py"), str(port), str(STREAM_PROCESSES)]
    with running(start("stream-backend", argv, port, folder, BURST.body.encode())) as backend:
        yield backend


@contextlib.contextmanager
def running(proxy: Proxy) -> Iterator[Proxy]:
    try:
        yield proxy
    finally:
        proxy.stop()


def started(
    name: str, backend: Proxy, options: argparse.Namespace, folder: Path, workload: Workload
) -> Proxy:
    """A proxy in front of the backend."""
    place = Place(free_port(), backend.port, folder)
    argv = proxies(options.tidegate_bin)[name](place)
    return start(name, argv, place.port, folder, workload.body.encode())


def measure(workload: Workload, backend: Proxy, options: argparse.Namespace, folder: Path) -> None:
    """All proxies in turns, in each round; prints the table."""
    found: Results = {DIRECT: Found()}
    with contextlib.ExitStack() as stack:
        measured = [Proxy(DIRECT, backend.port, None)]
        for name in options.peers:
            try:
                proxy = started(name, backend, options, folder, workload)
            except CannotMeasure as error:
                say(f"{name} is left out: {error}")
                continue
            measured.append(stack.enter_context(running(proxy)))
            found[name] = Found()
        for proxy in measured:
            posts(proxy.port, workload, 16, 1)  # so that the first round is like the others
        for number in range(options.rounds):
            say(f"{workload.name}: round {number + 1} of {options.rounds}")
            for proxy in measured:
                one_round(proxy, workload, options.seconds, found[proxy.name])
    print(table(workload, found), flush=True)


def one_round(proxy: Proxy, workload: Workload, seconds: int, found: Found) -> None:
    alone = posts(proxy.port, workload, 1, max(1, seconds // 2))
    found.p50_us.append(alone["p50_us"])
    found.p99_us.append(alone["p99_us"])
    before = proxy.cpu_us()
    many = posts(proxy.port, workload, 16, seconds)
    found.cpu_us.append((proxy.cpu_us() - before) / many["requests"])
    found.per_second.append(many["requests"] / many["duration_us"] * 1e6)


def posts(port: int, workload: Workload, connections: int, seconds: int) -> dict[str, int]:
    """What wrk counted. The proxy must answer all requests with 200."""
    assert load.WRK
    result = load.post(load.WRK, port, PATH, workload.body, connections, seconds)
    if result["bad_status"] or result["socket_errors"] or not result["requests"]:
        raise load.WrongAnswers(f"port {port}: {result}")
    return result


def table(workload: Workload, found: Results) -> str:
    """Medians of the rounds; the ratio is that of rounds, with its range."""
    heads = ["CPU µs", f"/ {REFERENCE}", "req/s at 16", "added p50 µs", "added p99 µs"]
    lines = [f"\n{workload.name:<24}" + "".join(f"{head:>21}" for head in heads)]
    direct = found[DIRECT]
    for name, numbers in found.items():
        added = [
            statistics.median(a - b for a, b in zip(ours, theirs, strict=True))
            for ours, theirs in ((numbers.p50_us, direct.p50_us), (numbers.p99_us, direct.p99_us))
        ]
        cells = [f"{statistics.median(numbers.cpu_us):,.0f}", ratio(found, name)]
        cells += [f"{statistics.median(numbers.per_second):,.0f}", f"{added[0]:,.0f}", f"{added[1]:,.0f}"]
        if name == DIRECT:
            median = statistics.median
            cells = ["-", "-", cells[2], f"({median(direct.p50_us):,.0f})", f"({median(direct.p99_us):,.0f})"]
        lines.append(f"{name:<24}" + "".join(f"{cell:>21}" for cell in cells))
    return "\n".join(lines)


def ratio(found: Results, name: str) -> str:
    if REFERENCE not in found:
        return "-"
    pairs = zip(found[name].cpu_us, found[REFERENCE].cpu_us, strict=True)
    ratios = [ours / theirs for ours, theirs in pairs]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"


def after_requests(backend: Proxy, options: argparse.Namespace, folder: Path) -> None:
    """Resident memory of some proxies: fresh, after a tenth of the requests, and after all."""
    for name in options.memory_peers if options.requests else ():
        with measurable(name, backend, options, folder, JSON) as tree:
            if tree is None:
                continue
            proxy, fresh, done = tree[0], tree[1].rss_kib(), 0
            tenth = None
            while done < options.requests:
                done += posts(proxy.port, JSON, 16, STEP_S)["requests"]
                if tenth is None and done >= options.requests / 10:
                    tenth = done, tree[1].rss_kib()
            assert tenth
            print(
                f"memory of {name}: {mib(fresh)} after the start, {mib(tenth[1])} after {tenth[0]:,} "
                f"requests, {mib(tree[1].rss_kib())} after {done:,}",
                flush=True,
            )


def idle_streams(backend: Proxy, options: argparse.Namespace, folder: Path) -> None:
    """Resident memory per open stream that is silent after its first event."""
    for name in options.memory_peers if options.streams else ():
        with measurable(name, backend, options, folder, BURST) as tree, contextlib.ExitStack() as opened:
            if tree is None:
                continue
            proxy, before = tree[0], tree[1].rss_kib()
            for _ in range(options.streams):
                opened.enter_context(silent_stream(proxy.port))
            time.sleep(1)  # what is left to do after the last event
            after = tree[1].rss_kib()
            print(
                f"{options.streams:,} silent streams of {name}: {(after - before) / options.streams:.1f} KiB "
                f"each, {mib(before)} without and {mib(after)} with them",
                flush=True,
            )


@contextlib.contextmanager
def measurable(
    name: str, backend: Proxy, options: argparse.Namespace, folder: Path, workload: Workload
) -> Iterator[tuple[Proxy, Tree] | None]:
    """A proxy and its processes, or nothing if it cannot be started."""
    try:
        proxy = started(name, backend, options, folder, workload)
    except CannotMeasure as error:
        say(f"{name} is left out: {error}")
        yield None
        return
    with running(proxy):
        assert proxy.tree
        yield proxy, proxy.tree


@contextlib.contextmanager
def silent_stream(port: int) -> Iterator[None]:
    """One stream that has sent its first event."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request(PATH, SILENT.body.encode()))
        received = b""
        while b"data: " not in received:
            piece = connection.recv(65_536)
            if not piece or (len(received) > 12 and b" 200 " not in received[:16]):
                raise load.WrongAnswers(f"port {port}: {received!r}")
            received += piece
        yield


def mib(kib: int) -> str:
    return f"{kib / 1024:.1f} MiB"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
