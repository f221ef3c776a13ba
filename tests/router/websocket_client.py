"""A WebSocket client over a plain socket, which sees and sends single frames."""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass

from server_process import Server

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@dataclass(frozen=True)
class Frame:
    """One frame."""

    opcode: int
    payload: bytes

    @property
    def close_code(self) -> int:
        return struct.unpack("!H", self.payload[:2])[0]


def encode(opcode: int, payload: bytes, *, masked: bool = False) -> bytes:
    """A final frame; clients mask theirs."""
    head = bytes([0x80 | opcode])
    bit = 0x80 if masked else 0
    if len(payload) < 126:
        head += bytes([bit | len(payload)])
    elif len(payload) < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", len(payload))
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", len(payload))
    if not masked:
        return head + payload
    key = os.urandom(4)
    mask = (key * (len(payload) // 4 + 1))[: len(payload)]
    number = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return head + key + number.to_bytes(len(payload), "big")


def decode(buffer: bytes) -> tuple[Frame, bytes] | None:
    """The first frame of the bytes and the rest; None if it is not complete."""
    if len(buffer) < 2:
        return None
    opcode, length, offset = buffer[0] & 0x0F, buffer[1] & 0x7F, 2
    if length >= 126:
        size = 2 if length == 126 else 8
        if len(buffer) < offset + size:
            return None
        length, offset = int.from_bytes(buffer[offset : offset + size], "big"), offset + size
    key = b""
    if buffer[1] & 0x80:
        key, offset = buffer[offset : offset + 4], offset + 4
    if len(buffer) < offset + length:
        return None
    payload = buffer[offset : offset + length]
    if key:
        mask = (key * (length // 4 + 1))[:length]
        payload = (int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")).to_bytes(length, "big")
    return Frame(opcode, payload), buffer[offset + length :]


class WebSocketClient:
    """A connection; `status` is the answer to the handshake."""

    def __init__(self, server: Server, path: str, **headers: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=15)
        lines = [
            f"GET {path} HTTP/1.1",
            "host: localhost",
            "connection: Upgrade",
            "upgrade: websocket",
            "sec-websocket-version: 13",
            "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
            *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
        ]
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        self._buffer = b""
        while b"\r\n\r\n" not in self._buffer:
            data = self.socket.recv(65536)
            assert data, "the connection ended before the handshake"
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)
        }

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, opcode: int, payload: bytes) -> None:
        self.socket.sendall(encode(opcode, payload, masked=True))

    def receive(self) -> Frame:
        while not (found := decode(self._buffer)):
            data = self.socket.recv(65536)
            assert data, "the connection ended before a frame"
            self._buffer += data
        frame, self._buffer = found
        return frame

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(65536) == b""
        except ConnectionResetError:
            return True
