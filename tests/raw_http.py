"""A caller that speaks in bytes: for requests that no client library would send."""

from __future__ import annotations

import json
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from servers import WAIT_TIMEOUT, Server


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The message of a refusal, which is JSON whoever refuses."""
        assert self.headers["content-type"] == "application/json", self
        return self.json["error"]


class Caller:
    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_TIMEOUT)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Caller:
        self.socket.sendall(data)
        return self

    def send_what_it_takes(self, data: bytes) -> bool:
        """Send, unless the server has hung up."""
        with suppress(ConnectionError):
            self.socket.sendall(data)
            return True
        return False

    def rest(self) -> bytes:
        """Everything until the server hangs up; a reset after an answer is an end too."""
        pieces = []
        with suppress(ConnectionResetError):
            while piece := self.socket.recv(65536):
                pieces.append(piece)
        return b"".join(pieces)

    def answers(self) -> list[Answer]:
        return answers(self.rest())

    def answer(self) -> Answer:
        """The only answer, after which the server hangs up."""
        (only,) = self.answers()
        return only


def answers(data: bytes) -> list[Answer]:
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) .*", first)
        assert match, f"not an answer: {head[:200]!r}"
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if match[1] == "100":
            continue
        length = int(headers.get("content-length", 0))
        found.append(Answer(int(match[1]), headers, data[:length]))
        data = data[length:]
    return found


def ask(server: Server, data: bytes) -> list[Answer]:
    with Caller(server) as caller:
        return caller.send(data).answers()


def request(*headers: str, method: str = "POST", target: str = "/predictions", body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: here", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
