"""The proof that a server is not worse off than before a fault."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from receiver import Receiver
from servers import WAIT_TIMEOUT, Reply, Server, wait_until

MIB = 1024 * 1024
SLOTS = 2  # of the model `journal`
_names = itertools.count()

#: What an answer must never tell: places on this machine, sources, traces.
_INTERNALS = re.compile(r"/tmp/|/root/|/home/|/usr/|\.rs\b|panicked|Traceback|File \"|0x[0-9a-f]{8}")


def memory(pid: int) -> int:
    """Resident memory of a process that is its own, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) * 1024


def peak_memory(pid: int) -> int:
    """The most that was ever resident, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def journal(server: Server) -> list[str]:
    """What the model `journal` wrote: `begin NONCE`, then `ok NONCE` or `canceled NONCE`."""
    path = server.directory / "journal"
    return path.read_text().splitlines() if path.exists() else []


def ended(server: Server, id: str, timeout: float = WAIT_TIMEOUT, **options: Any) -> dict[str, Any]:
    """The prediction when it is over."""

    def body() -> dict[str, Any] | None:
        answer = server.get(f"/predictions/{id}", **options).json
        return answer if answer["status"] in ("succeeded", "failed", "canceled") else None

    return wait_until(body, f"{id} to end", timeout)


def assert_refused(reply: Reply, *statuses: int) -> None:
    """A 4xx with a JSON error in the shape of the Cog face, which tells nothing of the inside."""
    assert reply.status in statuses if statuses else 400 <= reply.status < 500, str(reply)
    assert (reply.content_type or "").startswith("application/json"), str(reply)
    assert_error_body(reply.json)
    assert not _INTERNALS.search(reply.body.decode()), str(reply)


def assert_error_body(body: Any) -> None:
    """`{"error": text}`, perhaps with a status, or a list of details, each with a place and a text."""
    if "detail" in body:
        assert body["detail"], body
        for detail in body["detail"]:
            assert isinstance(detail["loc"], list), body
            assert isinstance(detail["msg"], str) and detail["msg"], body
    else:
        assert isinstance(body["error"], str) and body["error"], body


class Unhurt:
    """A server with the model `journal`: what it was before, and the proof that it is so again."""

    def __init__(self, server: Server, receiver: Receiver, scratch: Path) -> None:
        self.server = server
        self._receiver = receiver
        self._scratch = scratch
        self.hook = receiver.path()
        pid = server.process.pid
        self._memory, self._descriptors = memory(pid), descriptors(pid)
        self._executions = self.executions()

    @property
    def webhook(self) -> str:
        """Where nothing may arrive."""
        return self._receiver.url + self.hook

    def executions(self) -> list[str]:
        return journal(self.server)

    def check(self, *, growth: int = 64 * MIB, slots: int = SLOTS) -> None:
        """Nothing ran, nothing was sent, no slot is lost, nothing has grown."""
        self.server.wait_health("READY")
        assert self.executions() == self._executions
        self.assert_slots(slots)
        assert self._receiver.received(self.hook) == []
        assert self.executions()[len(self._executions) :] != []  # the journal is what this relies on
        self._executions = self.executions()
        self.assert_not_grown(growth)

    def assert_not_grown(self, growth: int) -> None:
        """Connections close and memory is given back a moment after the answer."""
        pid = self.server.process.pid
        wait_until(lambda: descriptors(pid) <= self._descriptors + 64, "the descriptors to be closed")
        wait_until(lambda: memory(pid) <= self._memory + growth, "the memory to be given back")

    def assert_slots(self, slots: int = SLOTS) -> None:
        """Exactly `slots` predictions run at once."""
        server, name = self.server, f"slots-{next(_names)}"
        gate = self._scratch / name

        def start() -> str | None:
            # A caller that has hung up may still be on its way out.
            body = {"input": {"nonce": name, "gate": str(gate)}}
            reply = server.post("/predictions", body, headers={"Prefer": "respond-async"})
            return reply.json["id"] if reply.status == 202 else None

        ids = [wait_until(start, f"a slot to be free ({slots} in all)") for _ in range(slots)]
        try:
            wait_until(lambda: self.executions().count(f"begin {name}") == slots, f"{slots} to run at once")
            assert server.post("/predictions", {"input": {"nonce": "one too many"}}).status == 409
            assert server.health()["status"] == "BUSY"
        finally:
            gate.touch()
        for id in ids:
            wait_until(
                lambda id=id: server.get(f"/predictions/{id}").json["status"] == "succeeded", "its end"
            )
        assert "begin one too many" not in self.executions()
