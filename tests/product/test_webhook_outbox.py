"""The outbox: webhooks of recorded jobs wait in the data folder, however many there are."""

import asyncio
import os
import signal
import sqlite3
import threading
import time
from datetime import datetime

import pytest
from environment import ROOT, free_port
from processes import peak_memory
from waiting import wait_until

FIXTURE = ROOT / "crates/store/tests/data/previous_version/tidegate.sql"
MODEL = "local/echo"
#: More messages and more bytes than earlier versions kept.
SMALL, LARGE, LARGE_BYTES = 12_000, 66, 4 << 20
MIB = 1 << 20


class QuickReceiver:
    """Responds 200 to every request and remembers the ids of the messages, and which were signed."""

    def __init__(self, port):
        self.ids = []
        self.signed = []
        self._loop = asyncio.new_event_loop()
        started = threading.Event()

        async def serve():
            self._server = await asyncio.start_server(self._connection, "127.0.0.1", port)
            started.set()

        self._loop.create_task(serve())
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        assert started.wait(15)

    async def _connection(self, reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
                await reader.readexactly(int(fields["content-length"]))
                self.ids.append(fields["webhook-id"])
                self.signed.append("webhook-signature" in fields)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def close(self):
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def kill(server):
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()


def metric(server, name):
    lines = server.get("/metrics").body.decode().splitlines()
    line = next(line for line in lines if line.startswith(f'{name}{{model="{MODEL}"}}'))
    return float(line.rpartition(" ")[2])


def old_data_folder(folder, url, small, large=0):
    """A data folder that an earlier version left, with undelivered webhooks."""
    folder.mkdir(mode=0o700)
    schema, _, _ = FIXTURE.read_text().partition("INSERT")
    database = sqlite3.connect(folder / "tidegate.db")
    database.executescript(schema)
    now = int(time.time() * 1e6)
    database.execute(
        """WITH RECURSIVE count(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM count WHERE n < ?)
           INSERT INTO letters (number, id, account, job, hook, created_at, attempts, next_at, model)
           SELECT n, 'msg_' || n, '', 'job' || n, ?, ? + n, 0, ? + n, ? FROM count""",
        (small + large, f'{{"url":"{url}","events":["completed"]}}', now, now, MODEL),
    )
    database.execute("INSERT INTO bodies SELECT number, x'7b7d' FROM letters WHERE number <= ?", (small,))
    database.execute(
        "INSERT INTO bodies SELECT number, zeroblob(?) FROM letters WHERE number > ?", (LARGE_BYTES, small)
    )
    database.commit()
    database.close()


@pytest.mark.timeout(150)
def test_no_webhook_is_given_up_however_many_wait(start_server, tmp_path):
    port = free_port()
    old_data_folder(tmp_path / "data", f"http://127.0.0.1:{port}/hook", SMALL, LARGE)
    data = {"TIDEGATE_DATA_DIR": str(tmp_path / "data"), "RUST_LOG": "error"}

    server = start_server("echo", env=data)
    wait_until(lambda: metric(server, "tidegate_webhooks_waiting") >= 1000, "attempts to send the messages")
    assert metric(server, "tidegate_webhooks_given_up_total") == 0
    assert peak_memory(server.process.pid) < 200 * MIB
    kill(server)

    receiver = QuickReceiver(port)
    try:
        server = start_server("echo", env=data)
        wait_until(lambda: len(set(receiver.ids)) == SMALL + LARGE, "all messages", timeout=90)
        wait_until(lambda: metric(server, "tidegate_webhooks_waiting") == 0, "no message to wait")
        assert metric(server, "tidegate_webhooks_given_up_total") == 0
        assert peak_memory(server.process.pid) < 200 * MIB
    finally:
        receiver.close()


def test_webhooks_of_the_previous_run_are_signed(start_server, tmp_path):
    """The data folder has a secret; the first message is sent when it is loaded."""
    count, port = 2000, free_port()
    old_data_folder(tmp_path / "data", f"http://127.0.0.1:{port}/hook", count)
    receiver = QuickReceiver(port)
    try:
        start_server("echo", env={"TIDEGATE_DATA_DIR": str(tmp_path / "data")})
        wait_until(lambda: len(set(receiver.ids)) == count, "all messages", timeout=30)
        assert receiver.signed.count(False) == 0
    finally:
        receiver.close()


@pytest.fixture
def data(tmp_path):
    return {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}


def deliveries(server, job):
    return server.get(f"/admin/deliveries?job={job}").json["deliveries"]


def delivery(server, job, state):
    def found():
        return next((one for one in deliveries(server, job) if one["state"] == state), None)

    return wait_until(found, f"the message about {job} to be {state}")


def test_the_schedule_of_retries_continues_after_a_kill(start_server, receiver, data):
    server, hook = start_server("echo", env=data), receiver.path()
    url = receiver.plan(hook, 503, headers={"Retry-After": "3000"})
    server.predict(id="a", webhook=url, webhook_events_filter=["completed"])
    before = delivery(server, "a", "retrying")
    kill(server)

    server = start_server("echo", env=data)
    after = delivery(server, "a", "retrying")
    assert (after["id"], after["earlier_attempts"]) == (before["id"], 1)
    due_before, due_after = (datetime.fromisoformat(one["next_attempt_at"]) for one in (before, after))
    assert abs((due_after - due_before).total_seconds()) < 100
    assert len(receiver.received(hook)) == 1

    receiver.plan(hook, 200)
    assert server.post(f"/admin/deliveries/{before['id']}/replay").status == 202
    delivered = delivery(server, "a", "delivered")
    assert (delivered["earlier_attempts"], len(delivered["attempts"])) == (1, 1)
    assert {one.headers["webhook-id"] for one in receiver.received(hook)} == {before["id"]}
