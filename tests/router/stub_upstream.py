"""A backend under the control of a test: it answers what the test says, and counts what arrives.

It runs in a thread of its own and writes raw bytes, so that it can be silent, cut a response or send odd
streams. `answer` handles requests for inferences; health checks and the list of models are answered apart
from it and are not counted as requests.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from waiting import WAIT_TIMEOUT, wait_until

#: Paths that the router asks on its own account.
CONTROL_PATHS = ("/health", "/v1/models", "/metrics", "/info", "/v2/health/ready", "/health-check")

WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class ClientGoneError(Exception):
    """The router closed the connection before the answer was complete."""


@dataclass
class UpstreamRequest:
    """A request as the stub received it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    #: Whether the connection was closed before the answer was complete.
    is_aborted: bool = False
    #: Whether the answer is complete.
    is_answered: bool = False

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The text of the only message of a chat request, by which tests tell requests apart."""
        return self.json["messages"][-1]["content"]


class Exchange:
    """One request and the answer that a test writes."""

    def __init__(self, connection: _Connection, request: UpstreamRequest, upstream: StubUpstream) -> None:
        self._connection, self.request, self.upstream = connection, request, upstream

    async def respond(
        self, status: int = 200, body: Any = b"", content_type: str = "application/json", **headers: str
    ) -> None:
        """A whole response; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._head(status, {"content-type": content_type, "content-length": str(len(data)), **headers})
        self._connection.write(data)

    async def begin_stream(
        self, status: int = 200, content_type: str = "text/event-stream", **headers: str
    ) -> None:
        """The head of a chunked response."""
        self._head(status, {"content-type": content_type, "transfer-encoding": "chunked", **headers})

    async def chunk(self, data: bytes) -> None:
        self._connection.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await asyncio.sleep(0)

    async def end_stream(self) -> None:
        self._connection.write(b"0\r\n\r\n")

    async def raw(self, data: bytes) -> None:
        self._connection.write(data)

    async def read(self) -> bytes:
        """The next bytes after the request, for upgraded connections; empty at the end."""
        return await self._connection.read()

    async def accept_websocket(self, **headers: str) -> None:
        """Answer the handshake of a WebSocket connection."""
        key = self.request.headers["sec-websocket-key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + WEBSOCKET_GUID).digest()).decode()
        handshake = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": accept}
        self._head(101, {**handshake, **headers})

    async def cut(self) -> None:
        """Close the connection in the middle of the answer, or before it."""
        self._connection.close()
        await asyncio.sleep(3600)

    async def stay_silent(self) -> None:
        await asyncio.sleep(3600)

    async def hold(self) -> None:
        """Wait until the test releases the request."""
        await self.upstream.permits_to_answer.acquire()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} Stub"] + [
            f"{name.replace('_', '-')}: {value}" for name, value in headers.items()
        ]
        self._connection.write("\r\n".join(lines).encode() + b"\r\n\r\n")


Answer = Callable[[Exchange], Awaitable[None]]


@dataclass(eq=False)
class _Connection(asyncio.Protocol):
    """One connection: parses requests and gives them to the stub, one after the other."""

    upstream: StubUpstream
    buffer: bytearray = field(default_factory=bytearray)
    transport: asyncio.Transport | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_gone: bool = False
    task: asyncio.Task[None] | None = None
    running: asyncio.Task[None] | None = None
    is_cut: bool = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.upstream.connections.add(self)
        self.upstream.n_connections += 1
        self.task = asyncio.ensure_future(self._run())

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True
        self.changed.set()
        self.upstream.connections.discard(self)
        if self.running:
            self.running.cancel()

    def write(self, data: bytes) -> None:
        if self.is_gone or self.transport is None:
            raise ClientGoneError
        self.transport.write(data)

    async def read(self) -> bytes:
        while not self.buffer:
            if not await self._more():
                return b""
        data = bytes(self.buffer)
        self.buffer.clear()
        return data

    def close(self) -> None:
        self.is_cut = True
        if self.transport:
            self.transport.close()

    async def _run(self) -> None:
        while request := await self._next_request():
            exchange = Exchange(self, request, self.upstream)
            self.running = asyncio.ensure_future(self.upstream.serve(exchange))
            with suppress(asyncio.CancelledError, ClientGoneError):
                try:
                    await self.running
                except AssertionError as error:
                    self.upstream.unexpected.append(f"{request.method} {request.path}: {error}")
                    self.close()
            self.running = None
            if not request.is_answered and not self.is_cut and not self.upstream.is_stopping:
                request.is_aborted = True
            if self.is_gone or self.is_cut:
                return

    async def _next_request(self) -> UpstreamRequest | None:
        while b"\r\n\r\n" not in self.buffer:
            if not await self._more():
                return None
        head, _, rest = bytes(self.buffer).partition(b"\r\n\r\n")
        self.buffer = bytearray(rest)
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if self.upstream.answers_early:
            body: bytes | None = b""
        elif "chunked" in headers.get("transfer-encoding", ""):
            body = await self._chunked()
        else:
            body = await self._take(int(headers.get("content-length", 0)))
        return None if body is None else UpstreamRequest(method, path, headers, body)

    async def _chunked(self) -> bytes | None:
        body = b""
        while True:
            while b"\r\n" not in self.buffer:
                if not await self._more():
                    return None
            size, _, rest = bytes(self.buffer).partition(b"\r\n")
            self.buffer = bytearray(rest)
            n_bytes = int(size.split(b";")[0], 16)
            piece = await self._take(n_bytes + 2)
            if piece is None:
                return None
            if n_bytes == 0:
                return body
            body += piece[:-2]

    async def _take(self, n_bytes: int) -> bytes | None:
        while len(self.buffer) < n_bytes:
            if not await self._more():
                return None
        taken = bytes(self.buffer[:n_bytes])
        del self.buffer[:n_bytes]
        return taken

    async def _more(self) -> bool:
        if self.is_gone:
            return False
        self.changed.clear()
        await self.changed.wait()
        return not self.is_gone or bool(self.buffer)


async def answer_chat(exchange: Exchange) -> None:
    """Answer a chat, a completion or embeddings the way vLLM does."""
    await exchange.respond(200, chat_document(exchange.request))


def chat_document(request: UpstreamRequest, text: str = "good") -> dict[str, Any]:
    body = request.json if request.body else {}
    model = body.get("model", "") if isinstance(body, dict) else ""
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    if request.path.startswith("/v1/embeddings"):
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data = [{"object": "embedding", "index": n, "embedding": [0.5, float(n)]} for n in range(len(texts))]
        return {"object": "list", "data": data, "model": model, "usage": usage}
    common = {"id": "chatcmpl-1", "created": 1, "model": model, "usage": usage}
    if request.path.startswith("/v1/completions"):
        choice = {"index": 0, "text": text, "finish_reason": "stop", "logprobs": None}
        return {**common, "object": "text_completion", "choices": [choice]}
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
    return {**common, "object": "chat.completion", "choices": [choice]}


def chat_event(text: str, finish_reason: str | None = None) -> bytes:
    """One event of a chat stream."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    document = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }
    return b"data: " + json.dumps(document).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


class StubUpstream:
    """The stub. Its attributes may be changed while it runs."""

    def __init__(
        self, answer: Answer = answer_chat, models: tuple[str, ...] = ("m",), health: Any = None
    ) -> None:
        self.answer, self.models = answer, models
        self.health_status = 200
        #: Whether requests are answered before their bodies are read.
        self.answers_early = False
        #: Answers of control paths that differ from those of vLLM.
        self.control_answers: dict[str, Any] = health or {}
        self.requests: list[UpstreamRequest] = []
        self.probes: list[UpstreamRequest] = []
        #: What `answer` did not expect; the test fails at its end.
        self.unexpected: list[str] = []
        self.connections: set[_Connection] = set()
        self.n_connections = 0
        self.n_active = self.most_active = 0
        self.is_stopping = False
        self.permits_to_answer = asyncio.Semaphore(0)
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: asyncio.Server | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def n_requests(self) -> int:
        return len(self.requests)

    @property
    def n_aborted(self) -> int:
        return sum(request.is_aborted for request in self.requests)

    @property
    def texts(self) -> list[str]:
        """The texts of the requests, in the order of their arrival."""
        return [request.text for request in self.requests]

    def start(self) -> None:
        """Listen, on the same port as before."""
        self.is_stopping = False
        self.run(self._listen())

    def stop(self) -> None:
        """Close the listener and every connection, as a process that is killed."""
        self.run(self._close())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_TIMEOUT)

    def release(self, n_requests: int = 1) -> None:
        """Let held requests go on."""

        async def release() -> None:
            for _ in range(n_requests):
                self.permits_to_answer.release()

        self.run(release())

    def wait_for_requests(self, n_requests: int) -> None:
        wait_until(lambda: self.n_requests >= n_requests, f"{n_requests} requests at the backend")

    async def serve(self, exchange: Exchange) -> None:
        request = exchange.request
        path = request.path.partition("?")[0]
        if path in self.control_answers or (request.method == "GET" and path in CONTROL_PATHS):
            self.probes.append(request)
            await self._answer_control(exchange, path)
            request.is_answered = True
            return
        self.n_active += 1
        self.most_active = max(self.most_active, self.n_active)
        # Last: tests wait for the request, and then read the others.
        self.requests.append(request)
        try:
            await self.answer(exchange)
            request.is_answered = True
        finally:
            self.n_active -= 1

    async def _answer_control(self, exchange: Exchange, path: str) -> None:
        if path in self.control_answers:
            await exchange.respond(self.health_status, self.control_answers[path])
        elif path == "/health":
            await exchange.respond(self.health_status)
        elif path == "/v1/models":
            data = [{"id": name, "object": "model"} for name in self.models]
            await exchange.respond(200, {"object": "list", "data": data})
        else:
            await exchange.respond(404, {"error": "no such path"})

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(lambda: _Connection(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self.is_stopping = True
        if self._server:
            self._server.close()
        for connection in list(self.connections):
            if connection.transport:
                connection.transport.abort()
        await asyncio.sleep(0)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a step in the thread of the stub, and wait for its end."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_TIMEOUT)
