"""The command line: `python -m torture` runs, `python -m torture check LOG` checks a saved log again."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from torture.checker import check, explain, read_history
from torture.cluster.profiles import CLUSTER_NAMES, ClusterProfile, cluster_profile_of
from torture.cluster.run import torture_cluster
from torture.history import History
from torture.profiles import NAMES, profile_of
from torture.rules_jobs import Violation
from torture.run import Settings, torture
from torture.server import ROOT

#: The number of violations that are shown in full.
SHOWN = 12


def main() -> int:
    """Run every seed; the exit code is 1 if there was a violation."""
    arguments = _arguments()
    if arguments.command == "check":
        return _check(arguments.log)
    binary = arguments.server.absolute()
    if not binary.exists():
        print(f"there is no server at {binary}; build it with `make native`", file=sys.stderr)
        return 64
    passed = failed = 0
    for seed in arguments.seed:
        is_cluster = arguments.profile in CLUSTER_NAMES
        profile = (cluster_profile_of if is_cluster else profile_of)(arguments.profile, seed)
        if arguments.settle is not None:
            profile = replace(profile, settle=arguments.settle)
        settings = Settings(binary, profile, seed, arguments.seconds, arguments.plant)
        violations = _one(settings, arguments)
        passed, failed = passed + (not violations), failed + bool(violations)
        if any(violation.invariant == arguments.until for violation in violations):
            break
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torture", description=__doc__, allow_abbrev=False)
    parser.set_defaults(command="run")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of load in each run")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="one run per seed")
    parser.add_argument("--until", metavar="INVARIANT", help="stop at the first seed that violates it")
    default = Path(os.environ.get("TIDEGATE_BIN", ROOT / "target" / "debug" / "tidegate"))
    parser.add_argument("--settle", type=float, help="seconds to wait for pending jobs after the load")
    parser.add_argument("--server", type=Path, default=default, help="the server binary")
    parser.add_argument(
        "--profile", choices=(*NAMES, *CLUSTER_NAMES), default="storm", help="the kind of run"
    )
    parser.add_argument("--plant", default="", metavar="BUG", help="enable a planted bug (make planted-bugs)")
    parser.add_argument("--logs", type=Path, default=ROOT / "target" / "torture", help="the folder for logs")
    parser.add_argument("--keep", action="store_true", help="also keep the logs of runs without violations")
    commands = parser.add_subparsers(dest="command_given")
    again = commands.add_parser("check", help="check a saved log again")
    again.add_argument("log", type=Path)
    arguments = parser.parse_args()
    arguments.command = arguments.command_given or "run"
    return arguments


def _one(settings: Settings, arguments: argparse.Namespace) -> list[Violation]:
    """Run one seed; returns the violations."""
    arguments.logs.mkdir(parents=True, exist_ok=True)
    plant = f"-{settings.plant}" if settings.plant else ""
    log = arguments.logs / f"{settings.profile.name}-{settings.seed}{plant}.jsonl"
    began = time.monotonic()
    is_cluster = isinstance(settings.profile, ClusterProfile)
    tail = (torture_cluster if is_cluster else torture)(settings, log)
    history = read_history(log)
    violations = check(history)
    _summary(settings, history, violations, time.monotonic() - began)
    if not violations:
        if not arguments.keep:
            log.unlink()
        return violations
    _show(violations, log)
    (log.with_suffix(".server.log")).write_text(tail)
    print(f"  saved: {log}")
    return violations


def _summary(settings: Settings, history: History, violations: list[Violation], took: float) -> None:
    accepted = sum(1 for job in history.jobs.values() if job.accepted)
    faults = sum(1 for event in history.of("fault") if event["phase"] == "open")
    print(
        f"seed {settings.seed} {settings.profile.name}/{settings.profile.variant}: "
        f"{len(history.requests)} requests, {accepted} jobs accepted, {len(history.of('begin'))} executions, "
        f"{len(history.of('hook'))} webhooks, {faults} faults in {took:.0f} s: "
        f"{len(violations)} violations",
        flush=True,
    )


def _show(violations: list[Violation], log: Path) -> None:
    counts = Counter(violation.invariant for violation in violations)
    print("  " + ", ".join(f"{invariant}: {count}" for invariant, count in sorted(counts.items())))
    for violation in violations[:SHOWN]:
        print("  " + explain(violation, log))


def _check(log: Path) -> int:
    violations = check(read_history(log))
    if violations:
        _show(violations, log)
    print(f"{len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
