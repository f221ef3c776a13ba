"""The event log of a run: one file of JSON lines, all times CLOCK_MONOTONIC.

Every part of a run writes its observations here at once. The model's journal is added at the end, so
the checker needs one file only.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

#: The text that identifies a job in its input, output and logs.
NONCE = re.compile(r"n\d+c\d+k\d+z")

#: The text that identifies an execution in its output.
EXECUTION = re.compile(r"x\d+q\d+e")

#: The server's own line at the end of truncated logs.
_NOTICE = re.compile(r"\[.*MiB\]")

#: The first line of the traceback at the end of the logs of a failed job.
_TRACEBACK = re.compile(r"[ +|]*(Exception Group )?Traceback \(most recent call last\):")

Event = dict[str, Any]

#: The statuses of a finished job.
TERMINAL = ("succeeded", "failed", "canceled", "aborted")


class EventLog:
    """Writes events; may be used from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, kind: str, *, t: float | None = None, **fields: Any) -> float:
        """Write an event with the current time, or with the time `t`; returns its time."""
        moment = time.monotonic() if t is None else t
        line = json.dumps({"t": round(moment, 6), "k": kind, **fields}, separators=(",", ":"))
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")
        return moment

    def add_journal(self, journal: Path) -> None:
        """Add the model's journal."""
        if not journal.exists():
            return
        for line in journal.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            self.write(entry.pop("e"), **entry)

    def close(self) -> None:
        """Close the file; later events are dropped."""
        with self._lock:
            self._file.close()


def read_log(path: Path) -> list[Event]:
    """All events of a saved log by time; `line` is the line number of the event."""
    events = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            event = json.loads(line)
            event["line"] = number
            events.append(event)
    return sorted(events, key=lambda event: event["t"])


def digest(body: bytes) -> Event:
    """The parts of a response or webhook body that the checker needs."""
    try:
        job = json.loads(body)
    except ValueError:
        return {"json": False, "start": body[:200].decode(errors="replace")}
    if not isinstance(job, dict):
        return {"json": True, "start": body[:200].decode(errors="replace")}
    seen: Event = {"json": True}
    for name in ("id", "status", "created_at", "started_at", "completed_at"):
        if isinstance(job.get(name), str):
            seen[name] = job[name]
    if isinstance(job.get("input"), dict):
        seen["input"] = job["input"].get("nonce")
    if job.get("error"):
        seen["error"] = str(job["error"])[:300]
    if "detail" in job:
        seen["detail"] = json.dumps(job["detail"])[:300]
    if "output" in job:
        seen |= output_digest(job["output"])
    if isinstance(job.get("logs"), str):
        seen |= logs_digest(job["logs"])
    return seen


def page_digest(body: bytes) -> Event:
    """The jobs on a page of a list, in order."""
    try:
        results = json.loads(body)["results"]
    except (ValueError, KeyError):
        return {"json": False, "start": body[:200].decode(errors="replace")}
    return {"json": True, "listed": [(one.get("input") or {}).get("nonce") for one in results]}


def output_digest(output: Any) -> Event:
    """The hash of an output value, and the nonces and executions in it."""
    text = json.dumps(output, sort_keys=True)
    seen: Event = {"out": hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:16]}
    seen["out_nonces"] = sorted(set(NONCE.findall(text)))
    seen["values"] = len(output) if isinstance(output, list) else 1
    return seen | {"out_runs": sorted(set(EXECUTION.findall(text)))}


def logs_digest(logs: str) -> Event:
    """The nonces in the log lines, and the first line without one; a traceback needs none."""
    seen: Event = {"log_nonces": sorted(set(NONCE.findall(logs)))}
    for line in logs.splitlines():
        if _TRACEBACK.fullmatch(line):
            break
        if line.strip() and not NONCE.search(line) and not _NOTICE.fullmatch(line):
            seen["log_bare"] = line[:200]
            break
    return seen
