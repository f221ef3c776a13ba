"""Checks that bad requests leave a server unchanged, by comparison with a baseline taken before."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

from http_client import Reply
from processes import open_descriptors, resident_memory
from receiver import Receiver
from server_process import Server
from waiting import wait_until

MIB = 1024 * 1024
SLOTS = 2  # of the model `journal`
_names = itertools.count()

#: What a response must never contain: paths of this machine, source locations, tracebacks.
_INTERNALS = re.compile(r"/tmp/|/root/|/home/|/usr/|\.rs\b|panicked|Traceback|File \"|0x[0-9a-f]{8}")


def read_journal(server: Server) -> list[str]:
    """The lines of the model `journal`: `begin NONCE`, then `ok NONCE` or `canceled NONCE`."""
    path = server.directory / "journal"
    return path.read_text().splitlines() if path.exists() else []


def assert_refused(reply: Reply, *statuses: int) -> None:
    """Assert a 4xx with an error in the format of the Cog API that reveals no internals."""
    assert reply.status in statuses if statuses else 400 <= reply.status < 500, str(reply)
    assert (reply.content_type or "").startswith("application/json"), str(reply)
    assert_error_body(reply.json)
    assert not _INTERNALS.search(reply.body.decode()), str(reply)


def assert_error_body(body: Any) -> None:
    """Assert `{"error": text}`, perhaps with a status, or a list of details with `loc` and `msg`."""
    if "detail" in body:
        assert body["detail"], body
        for detail in body["detail"]:
            assert isinstance(detail["loc"], list), body
            assert isinstance(detail["msg"], str) and detail["msg"], body
    else:
        assert isinstance(body["error"], str) and body["error"], body


class Baseline:
    """The state of a server with the model `journal`, to compare with its state after bad requests."""

    def __init__(self, server: Server, receiver: Receiver, scratch: Path) -> None:
        self.server = server
        self._receiver = receiver
        self._scratch = scratch
        self.hook = receiver.path()
        pid = server.process.pid
        self._memory, self._descriptors = resident_memory(pid), open_descriptors(pid)
        self._executions = self.executions()

    @property
    def webhook(self) -> str:
        """A webhook URL that must receive nothing."""
        return self._receiver.url + self.hook

    def executions(self) -> list[str]:
        return read_journal(self.server)

    def check(self, *, growth: int = 64 * MIB, slots: int = SLOTS) -> None:
        """Assert that no job ran, no webhook was sent, no slot was lost and nothing has grown."""
        self.server.wait_health("READY")
        assert self.executions() == self._executions
        self.assert_slots(slots)
        assert self._receiver.received(self.hook) == []
        # The jobs of `assert_slots` are in the journal: it does record executions.
        assert self.executions()[len(self._executions) :] != []
        self._executions = self.executions()
        self.assert_not_grown(growth)

    def assert_not_grown(self, growth: int) -> None:
        """Assert bounded descriptors and memory, which the server releases soon after a response."""
        pid = self.server.process.pid
        wait_until(lambda: open_descriptors(pid) <= self._descriptors + 64, "the descriptors to be closed")
        wait_until(lambda: resident_memory(pid) <= self._memory + growth, "the memory to be released")

    def assert_slots(self, slots: int = SLOTS) -> None:
        """Assert that exactly `slots` predictions run at once."""
        server, name = self.server, f"slots-{next(_names)}"
        gate = self._scratch / name

        def start() -> str | None:
            # A slot whose client has disconnected may not be free yet.
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
                lambda id=id: server.get(f"/predictions/{id}").json["status"] == "succeeded", f"{id} to end"
            )
        assert "begin one too many" not in self.executions()
