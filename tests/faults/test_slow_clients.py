"""B1, B2, B5 and the time limit of C2: what takes up to a minute, because the limits do.

All of it happens at the same time, in the background of a module fixture; each test waits for its own part.
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


class Slow:
    """A client that sends a little, waits, and notes when it is sent away."""

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
        assert self.seconds is not None, "the client was never sent away"
        return self.seconds


class Scene:
    def __init__(self, scratch):
        self.vanished = NamespacedScript("vanished_client.py", folder(scratch, "vanish"))
        self.server = start_tidegate("journal", folder(scratch, "slow"))
        self.before = resident_memory(self.server.process.pid), open_descriptors(self.server.process.pid)
        self.hanging = hostile_servers.HostileServer(self._time_the_hang)
        self.hung = []
        self.server.start({"nonce": "told"}, webhook=self.hanging.url, webhook_events_filter=["completed"])
        self.headers = [
            Slow(self.server, b""),
            Slow(self.server, b"POST /predictions HTTP/1.1\r\nHost: x\r\n"),
            Slow(self.server, b"POST /predictions HTTP/1.1\r\nHost: x\r\n", b"x: y\r\n"),
            Slow(self.server, b"P", b"O"),
        ]
        self.bodies = [
            Slow(self.server, json_request(b'{"input":{"nonce":"slow"', length=100)),
            Slow(self.server, json_request(b"", length=100)),
            Slow(self.server, json_request(b"5\r\n{", content_length="", transfer_encoding="chunked")),
        ]

    def _time_the_hang(self, peer: socket.socket, closing: threading.Event):
        began = time.monotonic()
        peer.settimeout(60)
        while peer.recv(65536):
            pass
        self.hung.append(time.monotonic() - began)

    def close(self):
        self.vanished.stop()
        self.hanging.close()
        self.server.stop()


def folder(scratch, name):
    made = scratch / name
    made.mkdir()
    return made


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    scene = Scene(tmp_path_factory.mktemp("slow"))
    yield scene
    scene.close()


def test_endless_headers_time_out_after_30_s(scene):
    for slow in scene.headers:
        assert slow.wait() < 40


def test_an_attempt_to_a_hanging_receiver_times_out_after_30_s(scene):
    wait_until(lambda: scene.hung, "the attempt to be given up", timeout=45)
    assert scene.hung[0] < 35


def test_an_endless_body_times_out_after_60_s(scene):
    for slow in scene.bodies:
        assert slow.wait() < 75
        head, _, body = slow.answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 "), slow.answer
        assert_error_body(json.loads(body))
    assert [line for line in read_journal(scene.server) if "slow" in line] == []


def test_slow_clients_leak_nothing(scene):
    for slow in scene.headers + scene.bodies:
        slow.wait()
    pid, (memory_before, descriptors_before) = scene.server.process.pid, scene.before
    wait_until(lambda: open_descriptors(pid) <= descriptors_before + 16, "their connections to be closed")
    assert resident_memory(pid) - memory_before < 64 * MIB
    assert scene.server.predict({"nonce": "after"}).json["output"] == "after"


def test_a_client_that_vanishes_is_detected_and_its_slot_is_free(scene):
    facts = scene.vanished.findings(timeout=150)
    assert facts["status"] == "canceled", facts
    assert facts["seconds"] < 90
    assert facts["next"] == "next"
    assert "canceled vanished" in facts["journal"]
