"""Rows B1, B2, B5 and the timeout of C2 of docs/reliability.md: faults that last up to a minute.

The limits are that long. All clients run at the same time in a module fixture; each test waits for its own.
"""

import json
import socket
import threading
import time

import hostile_servers
import pytest
from baseline import MIB, assert_error_body, read_journal
from launch import start_tidegate
from namespaces import NamespacedScript
from processes import open_descriptors, resident_memory
from raw_http import RawConnection, json_request
from waiting import wait_until

pytestmark = pytest.mark.timeout(180)


class SlowClient:
    """A client that sends a little, waits, and records when the server closes the connection."""

    def __init__(self, server, first, drip=b""):
        self._drip, self._connection, self.answer, self.seconds = drip, RawConnection(server), b"", None
        self._connection.send(first)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        began = time.monotonic()
        self._connection.socket.settimeout(1)
        while time.monotonic() - began < 120:
            try:
                data = self._connection.socket.recv(65536)
            except TimeoutError:
                self._connection.try_send(self._drip)
                continue
            except ConnectionResetError:
                data = b""
            self.answer += data
            if not data:
                self.seconds = time.monotonic() - began
                return

    def wait(self):
        self._thread.join(130)
        assert self.seconds is not None, "the server never closed the connection"
        return self.seconds


class SlowClients:
    def __init__(self, scratch):
        self.vanished = NamespacedScript("vanished_client.py", folder(scratch, "vanish"))
        self.server = start_tidegate("journal", folder(scratch, "slow"))
        self.before = resident_memory(self.server.process.pid), open_descriptors(self.server.process.pid)
        self.hanging = hostile_servers.HostileServer(self._measure_hang)
        self.hang_seconds = []
        self.server.start({"nonce": "told"}, webhook=self.hanging.url, webhook_events_filter=["completed"])
        self.headers = [
            SlowClient(self.server, b""),
            SlowClient(self.server, b"POST /predictions HTTP/1.1\r\nHost: localhost\r\n"),
            SlowClient(self.server, b"POST /predictions HTTP/1.1\r\nHost: localhost\r\n", b"x: y\r\n"),
            SlowClient(self.server, b"P", b"O"),
        ]
        self.bodies = [
            SlowClient(self.server, json_request(b'{"input":{"nonce":"slow"', length=100)),
            SlowClient(self.server, json_request(b"", length=100)),
            SlowClient(self.server, json_request(b"5\r\n{", content_length="", transfer_encoding="chunked")),
        ]

    def _measure_hang(self, peer: socket.socket, closing: threading.Event):
        began = time.monotonic()
        peer.settimeout(60)
        while peer.recv(65536):
            pass
        self.hang_seconds.append(time.monotonic() - began)

    def close(self):
        self.vanished.stop()
        self.hanging.close()
        self.server.stop()


def folder(scratch, name):
    made = scratch / name
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def slow_clients(tmp_path_factory):
    clients = SlowClients(tmp_path_factory.mktemp("slow"))
    yield clients
    clients.close()


def test_endless_headers_time_out_after_30_s(slow_clients):
    for slow in slow_clients.headers:
        assert slow.wait() < 40


def test_an_attempt_to_a_hanging_receiver_times_out_after_30_s(slow_clients):
    wait_until(lambda: slow_clients.hang_seconds, "the attempt to time out", timeout=45)
    assert slow_clients.hang_seconds[0] < 35


def test_an_endless_body_times_out_after_60_s(slow_clients):
    for slow in slow_clients.bodies:
        assert slow.wait() < 75
        head, _, body = slow.answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 "), slow.answer
        assert_error_body(json.loads(body))
    assert [line for line in read_journal(slow_clients.server) if "slow" in line] == []


def test_slow_clients_leak_nothing(slow_clients):
    for slow in slow_clients.headers + slow_clients.bodies:
        slow.wait()
    pid, (memory_before, descriptors_before) = slow_clients.server.process.pid, slow_clients.before
    wait_until(lambda: open_descriptors(pid) <= descriptors_before + 16, "their connections to be closed")
    assert resident_memory(pid) - memory_before < 64 * MIB
    assert slow_clients.server.predict({"nonce": "after"}).json["output"] == "after"


def test_a_client_that_vanishes_is_detected_and_its_slot_is_free(slow_clients):
    facts = slow_clients.vanished.findings(timeout=150)
    assert facts["status"] == "canceled", facts
    assert facts["seconds"] < 90
    assert facts["next"] == "next"
    assert "canceled vanished" in facts["journal"]
