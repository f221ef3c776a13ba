"""One running peer."""

import socket
import time
from pathlib import Path

from tidebench.client import Answer, Connection, Unanswered, request
from tidebench.peers import Kind, Peer
from tidebench.processes import Tree

READY_LIMIT_S = 30.0
POLL_S = 0.003


class DidNotStart(Exception):
    """The server ended or never answered; the message has the end of its log."""


class Server:
    """A peer that serves one kind of model, until it is stopped."""

    def __init__(self, peer: Peer, kind: Kind, logs: Path) -> None:
        self.peer = peer
        self.kind = kind
        self.port = free_port()
        self._log = logs / f"{peer.name}-{kind.value}.log"
        began = time.perf_counter()
        self.tree = Tree(peer.command(kind, self.port), self._log)
        try:
            self._until_ready(began + READY_LIMIT_S)
        except BaseException:
            self.tree.stop()
            raise
        self.cold_start_s = time.perf_counter() - began

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.tree.stop()

    @property
    def body(self) -> bytes:
        """A small request for this kind of model."""
        if self.kind is Kind.STREAM:
            return b'{"input":{"tokens":1000}}'
        return b'{"input":{"text":"hello there"}}'

    def wire(self, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        return request(self.peer.path, self.body if body is None else body, headers)

    def connect(self) -> Connection:
        return Connection(self.port)

    def good_answer(self, body: bytes | None = None) -> Answer:
        """The answer to one request; cog may first have to free its slot."""
        with self.connect() as connection:
            while (answer := connection.post(self.wire(body))).status == 409:
                time.sleep(POLL_S)
        return answer

    def _until_ready(self, deadline: float) -> None:
        while not self._answers():
            if not self.tree.is_alive() or time.perf_counter() > deadline:
                tail = self._log.read_bytes()[-2000:].decode(errors="replace")
                raise DidNotStart(f"{self.peer.name} ({self.kind.value}) did not start:\n{tail}")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        try:
            with self.connect() as connection:
                answer: Answer = connection.post(self.wire())
        except (OSError, Unanswered):
            return False
        # A failed prediction is a 200 too.
        expected = b"token999 " if self.kind is Kind.STREAM else b"hello there"
        return answer.status == 200 and expected in answer.body


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
