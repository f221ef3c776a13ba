"""A load balancer in front of API processes: each request goes to the next one."""

from __future__ import annotations

import http.client
import itertools
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Headers of one connection, and those that the server of this module sends itself.
NOT_FORWARDED = {"connection", "keep-alive", "transfer-encoding", "content-length", "te", "upgrade"}


class LoadBalancer:
    """Listens on a port of its own and sends requests to the ports in turn."""

    def __init__(self) -> None:
        ports = self._ports = []

        class Handler(_Forwarder):
            turns = _turns(ports)

        self._server = _Listener(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, port: int) -> None:
        self._ports.append(port)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    # Clients open a hundred connections at once; more than this many would wait for a second attempt.
    request_queue_size = 256


def _turns(ports: list[int]) -> Iterator[int]:
    return (ports[turn % len(ports)] for turn in itertools.count())


class _Forwarder(BaseHTTPRequestHandler):
    """Every request has a connection of its own."""

    protocol_version = "HTTP/1.1"
    turns: Iterator[int]

    def forward(self) -> None:
        body = self._body()
        headers = {name: value for name, value in self.headers.items() if name.lower() not in NOT_FORWARDED}
        connection = http.client.HTTPConnection("127.0.0.1", next(self.turns), timeout=60)
        try:
            connection.request(self.command, self.path, body, headers)
            reply = connection.getresponse()
            self._send_head(reply)
            while part := reply.read1(65536):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if reply.chunked else part)
            if reply.chunked:
                self.wfile.write(b"0\r\n\r\n")
        except (ConnectionError, TimeoutError, http.client.HTTPException):
            # The client sees a connection that ends early.
            pass
        finally:
            self.close_connection = True
            connection.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_QUERY = forward

    def _send_head(self, reply: http.client.HTTPResponse) -> None:
        self.send_response_only(reply.status, reply.reason)
        for name, value in reply.getheaders():
            if name.lower() not in NOT_FORWARDED - {"content-length", "transfer-encoding"}:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()

    def _body(self) -> bytes | None:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0))) or None
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def log_message(self, *arguments: object) -> None:
        pass
