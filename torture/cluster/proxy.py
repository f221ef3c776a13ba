"""A TCP proxy whose links can be cut, blocked and delayed. Each link connects one process to one server."""

from __future__ import annotations

import asyncio
from collections import deque

#: Bytes and the time at which they are passed on; `None` is the end of the connection.
_Delayed = tuple[float, bytes | None]


class Link:
    """A listening port that passes connections on to another port."""

    def __init__(self, name: str, target: int) -> None:
        self.name = name
        self.target = target
        self.port = 0
        #: Seconds by which bytes are delayed, in both directions.
        self.delay = 0.0
        self.is_cut = False
        #: Bytes are kept, and neither side learns that the other one has closed its connection.
        self.is_blocked = False
        self._server: asyncio.Server | None = None
        self.connections: set[_Connection] = set()

    async def start(self) -> None:
        """Listen on a free port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self).client, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Close everything."""
        if self._server:
            self._server.close()
        self.reset()

    def reset(self) -> None:
        """Break all connections."""
        for connection in list(self.connections):
            connection.abort()

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        self.is_cut = True
        self.reset()

    def block(self) -> None:
        """Pass nothing on, as a network that loses every packet."""
        self.is_blocked = True

    def heal(self) -> None:
        """Pass everything on again; what was kept arrives now."""
        self.is_cut = self.is_blocked = False
        self.delay = 0.0
        for connection in list(self.connections):
            connection.resume()


class _Connection:
    """Both sides of one connection."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.client = _Side(self)
        self.server = _Side(self)
        self.client.peer, self.server.peer = self.server, self.client

    def opened(self) -> None:
        """The process has connected."""
        if self.link.is_cut:
            return self.abort()
        self.link.connections.add(self)
        if not self.link.is_blocked:
            self._connect()

    def _connect(self) -> None:
        self._connecting = asyncio.ensure_future(self._connect_to_server())

    async def _connect_to_server(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.server, "127.0.0.1", self.link.target)
        except OSError:
            self.abort()
            return
        if self not in self.link.connections:
            self.abort()
        self.client.flush()

    def resume(self) -> None:
        """The link is not blocked any more."""
        if self.server.transport is None:
            self._connect()
        self.client.flush()
        self.server.flush()

    def abort(self) -> None:
        self.link.connections.discard(self)
        for side in (self.client, self.server):
            if side.transport is not None:
                side.transport.abort()

    def closed(self) -> None:
        """One side has passed on the end."""
        self.link.connections.discard(self)


class _Side(asyncio.Protocol):
    """One side of a connection. Its bytes go to the other side."""

    peer: _Side

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._pending: deque[_Delayed] = deque()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self is self._connection.client:
            self._connection.opened()

    def data_received(self, data: bytes) -> None:
        self._pass_on(data)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._pass_on(None)

    def _pass_on(self, data: bytes | None) -> None:
        loop = asyncio.get_running_loop()
        self._pending.append((loop.time() + self._connection.link.delay, data))
        self.flush()

    def flush(self) -> None:
        """Pass on what is due."""
        loop, link = asyncio.get_running_loop(), self._connection.link
        while self._pending and not link.is_blocked and self.peer.transport is not None:
            due, data = self._pending[0]
            if due > loop.time():
                loop.call_at(due, self.flush)
                return
            self._pending.popleft()
            if data is None:
                self.peer.transport.close()
                self._connection.closed()
            elif not self.peer.transport.is_closing():
                self.peer.transport.write(data)
