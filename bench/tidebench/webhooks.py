"""Asynchronous predictions whose results come back by webhook to a receiver in this process."""

import asyncio
import itertools
import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

from tidebench.client import content_length, request, status_of
from tidebench.server import Server

COUNT = 200
IN_FLIGHT = 8
LIMIT_S = 30.0
RETRY_S = 0.002
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"

_numbers = itertools.count()


@dataclass(frozen=True)
class Completions:
    per_second: float
    p50_ms: float


class Inbox:
    """Where webhooks arrive: who waits for which prediction."""

    def __init__(self) -> None:
        self.waiting: dict[str, asyncio.Future[None]] = {}

    def arrived(self, body: bytes) -> None:
        waiter = self.waiting.pop(json.loads(body)["id"], None)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Http(asyncio.Protocol, ABC):
    """One connection, either side: cuts the bytes into messages."""

    def __init__(self) -> None:
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (cut := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:cut]
            end = cut + 4 + (content_length(head) or 0)
            if len(self._data) < end:
                return
            body, self._data = self._data[cut + 4 : end], self._data[end:]
            self.message(head, body)

    @abstractmethod
    def message(self, head: bytes, body: bytes) -> None:
        """A whole message has come."""


class Receiver(Http):
    def __init__(self, inbox: Inbox) -> None:
        super().__init__()
        self._inbox = inbox

    def message(self, head: bytes, body: bytes) -> None:
        self.transport.write(OK)
        self._inbox.arrived(body)


class Caller(Http):
    def message(self, head: bytes, body: bytes) -> None:
        self.answer.set_result(status_of(head))

    async def post(self, wire: bytes) -> int:
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.transport.write(wire)
        return await self.answer


def measure(server: Server, count: int = COUNT) -> Completions:
    return asyncio.run(asyncio.wait_for(_measure(server, count), LIMIT_S))


async def _measure(server: Server, count: int) -> Completions:
    loop = asyncio.get_running_loop()
    inbox = Inbox()
    receiver = await loop.create_server(lambda: Receiver(inbox), "127.0.0.1", 0)
    hook = f"http://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/"
    times: list[float] = []
    left = iter(range(count))

    async def work() -> None:
        transport, caller = await loop.create_connection(Caller, "127.0.0.1", server.port)
        for _ in left:
            times.append(await _one(caller, server, hook, inbox))
        transport.close()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    seconds = time.perf_counter() - began
    receiver.close()
    return Completions(count / seconds, sorted(times)[count // 2] * 1e3)


async def _one(caller: Caller, server: Server, hook: str, inbox: Inbox) -> float:
    """From the request to the arrival of its webhook."""
    name = f"bench-{next(_numbers)}"
    waiter = inbox.waiting[name] = asyncio.get_running_loop().create_future()
    body = {"id": name, "input": {"text": "hello there"}, "webhook": hook}
    encoded = json.dumps({**body, "webhook_events_filter": ["completed"]}).encode()
    wire = request(server.peer.path, encoded, {"Prefer": "respond-async"})
    began = time.perf_counter()
    while (status := await caller.post(wire)) == 409:
        await asyncio.sleep(RETRY_S)
    if status != 202:
        raise RuntimeError(f"{server.peer.name} answered {status} to an asynchronous prediction")
    await waiter
    return time.perf_counter() - began
