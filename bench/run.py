"""`make bench`: tidegate beside Cog, mosec, LitServe, FastAPI and the floor, in turns on the same machine.

Prints two tables: medians, and tidegate's ratios with the targets. A slow number never fails the
run; only a peer that cannot be measured does, and then the others are still reported.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidebench import layout, load, report
from tidebench.peers import Cog, FastApi, Floor, Kind, LitServe, Mosec, Peer, Tidegate
from tidebench.server import DidNotStart, Server
from tidebench.workloads import MIB, Effort, Numbers, Workload, workloads

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
BUILT = ROOT / "target" / "wheel"
PEERS = ("tidegate", "cog", "mosec", "litserve", "fastapi", "floor")
WARM_UP = Effort(seconds=1, streams=2)
QUICK = Effort(seconds=1, streams=5)
THOROUGH = Effort(seconds=2, streams=30)


@dataclass(frozen=True)
class Stage:
    """Who is measured, how often and how long."""

    peers: list[Peer]
    n_rounds: int
    effort: Effort
    logs: Path


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory(prefix="tidebench-") as folder:
        work = Path(folder)
        try:
            peers = find_peers(options, work)
        except (layout.NotBuilt, subprocess.CalledProcessError) as error:
            sys.exit(f"bench: {error}")
        if load.WRK is None:
            say("wrk is not installed: a Python client takes its place and shows too little")
        body = work / "1MiB.json"
        body.write_text(json.dumps({"input": {"text": "x" * MIB}}))
        chosen = [workload for workload in workloads(body) if wanted(workload.name, options.only)]
        effort = QUICK if options.quick else THOROUGH
        stage = Stage(peers, options.rounds, effort, work / "logs")
        stage.logs.mkdir()
        rounds: report.Rounds = {peer.name: [{} for _ in range(stage.n_rounds)] for peer in peers}
        for workload in chosen:
            run(workload, stage, rounds)
        if options.keep_logs:
            shutil.copytree(stage.logs, options.keep_logs, dirs_exist_ok=True)
    show(rounds)
    if options.json:
        medians = {name: medians_of(found) for name, found in rounds.items()}
        options.json.write_text(json.dumps({"medians": medians, "rounds": rounds}, indent=1) + "\n")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    given, in_bench_venv = os.environ.get("TIDEGATE_BIN"), ROOT / ".venv-bench/bin/python"
    add("--quick", action="store_true", help="short measurements and 2 rounds: a first look")
    add("--rounds", type=int, help="how often the peers take turns (5, or 2 with --quick)")
    add("--only", type=names, help="parts of the names of workloads, such as echo,stream")
    add("--peers", type=names, default=list(PEERS), help=f"some of {','.join(PEERS)}")
    add("--json", type=Path, metavar="FILE", help="write every number there too")
    add("--tidegate-bin", type=Path, default=given, metavar="BIN", help="the tidegate to measure")
    add("--baseline", type=Path, metavar="BIN", help="another tidegate, measured as `baseline`")
    add("--freeze", type=Path, metavar="DIR", help="only keep the tidegate there, as a baseline")
    add("--cog-python", type=Path, default=in_bench_venv, metavar="PATH", help="one with cog")
    add("--mosec-python", type=Path, default=in_bench_venv, metavar="PATH", help="one with mosec")
    add("--peer-python", type=Path, default=in_bench_venv, metavar="PATH", help="one with litserve, fastapi")
    add("--floor-bin", type=Path, default=BUILT / "tidegate-floor", metavar="BIN")
    add("--keep-logs", type=Path, metavar="DIR", help="keep what the servers wrote")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 5)
    return options


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def wanted(name: str, only: list[str] | None) -> bool:
    return only is None or any(part in name for part in only)


def find_peers(options: argparse.Namespace, work: Path) -> list[Peer]:
    python = Path(sys._base_executable)  # type: ignore[attr-defined]
    given = options.tidegate_bin or installed_wheel()
    tidegate = layout.installed(Path(given), options.freeze or work / "tidegate", python)
    if options.freeze:
        say(f"laid out: {tidegate}")
        sys.exit(0)
    models = copy_models(work / "models", tidegate)
    found: list[Peer] = []
    if "tidegate" in options.peers:
        found.append(Tidegate("tidegate", tidegate, models))
    if options.baseline:
        baseline = layout.installed(options.baseline, work / "baseline", python)
        found.append(Tidegate("baseline", baseline, models))
    if "cog" in options.peers:
        found.append(Cog("cog", options.cog_python.absolute(), models))
    if "mosec" in options.peers:
        found.append(Mosec("mosec", options.mosec_python.absolute(), BENCH / "models" / "mosec"))
    if "litserve" in options.peers:
        found.append(LitServe("litserve", options.peer_python.absolute(), BENCH / "models" / "litserve"))
    if "fastapi" in options.peers:
        found.append(FastApi("fastapi", options.peer_python.absolute(), BENCH / "models" / "fastapi"))
    if "floor" in options.peers:
        loop = BENCH / "floor" / "loop.py"
        found.append(Floor("floor", options.floor_bin.absolute(), python, loop))
    return found


def installed_wheel() -> Path:
    """The wheel that `bench/setup.sh` installed, or the binary of the checkout."""
    installed = ROOT / ".venv-bench-tidegate" / "bin" / "tidegate"
    return installed if installed.exists() else BUILT / "tidegate"


def copy_models(folder: Path, tidegate: Path) -> Path:
    """Copies of the models with the schema file that Cog needs; ours equals its own."""
    for kind in Kind:
        model = folder / kind.value
        unwanted = shutil.ignore_patterns("__pycache__")
        shutil.copytree(BENCH / "models" / kind.value, model, ignore=unwanted)
        (model / ".cog").mkdir()
        (model / ".cog" / "openapi_schema.json").write_bytes(layout.schema(tidegate, model))
    return folder


def run(workload: Workload, stage: Stage, rounds: report.Rounds) -> None:
    """One workload, all rounds; peers take turns within each round."""
    peers = [peer for peer in stage.peers if workload.fits(peer)]
    if not peers:
        return
    say(f"{workload.name} ", end="")
    began = time.perf_counter()
    with contextlib.ExitStack() as running:
        servers: dict[str, Server] = {}
        for peer in [] if workload.alone else peers:
            with tolerant(peer.name):
                server = running.enter_context(Server(peer, workload.kind, stage.logs))
                workload.measure(server, WARM_UP)
                servers[peer.name] = server
        for index in range(stage.n_rounds):
            # Not always the same one first: what runs before may leave the machine warm.
            for peer in rotated(peers, index):
                with tolerant(peer.name):
                    rounds[peer.name][index].update(once(workload, peer, servers, stage))
            say(".", end="")
    say(f" {time.perf_counter() - began:.0f} s")


def once(workload: Workload, peer: Peer, servers: dict[str, Server], stage: Stage) -> Numbers:
    if workload.alone:
        with Server(peer, workload.kind, stage.logs) as server:
            return workload.measure(server, stage.effort)
    return workload.measure(servers[peer.name], stage.effort) if peer.name in servers else {}


@contextlib.contextmanager
def tolerant(name: str) -> Iterator[None]:
    """A peer that fails leaves a hole in the table, not a broken run."""
    try:
        yield
    except (DidNotStart, OSError, RuntimeError, TimeoutError, subprocess.SubprocessError) as error:
        say(f"\n{name}: {type(error).__name__}: {error}")


def rotated(peers: list[Peer], by: int) -> list[Peer]:
    by %= len(peers)
    return peers[by:] + peers[:by]


def medians_of(rounds: list[Numbers]) -> Numbers:
    keys = dict.fromkeys(key for numbers in rounds for key in numbers)
    return {key: value for key in keys if (value := report.median(rounds, key)) is not None}


def show(rounds: report.Rounds) -> None:
    say("")
    print(report.medians_table(rounds))
    if "tidegate" in rounds and len(rounds) > 1:
        print()
        print(report.ratios_table(rounds))


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
