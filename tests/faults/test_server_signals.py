"""Rows A7 to A10 and A17 to A19 of docs/reliability.md: stopped servers, clock changes, restarts."""

import datetime
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from environment import MODELS, shim_python, tidegate_bin, tidegate_env
from footprint import (
    assert_health_answers,
    assert_recovers,
    assert_serves,
    processes_with_tag,
    tag_of,
    wait_for_logs,
)
from http_client import wait_for_end
from processes import descendants, paused, send_signal
from waiting import wait_until

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def test_running_and_queued_jobs_end_before_the_server_exits(start_server, gate, receiver, temp_dir):
    server, hooks = start_server("faults", "--queue", "5"), [receiver.path() for _ in range(4)]
    mark = tag_of(server)
    for number, hook in enumerate(hooks):
        input = {"how": "gate", "gate": str(gate), "text": str(number)}
        server.start(input, webhook=receiver.url + hook)
    receiver.wait(hooks[0])
    server.signal(signal.SIGTERM)
    wait_until(lambda: server.refuses_connections(), "the listener to close")
    gate.open()
    assert [receiver.wait_terminal(hook)["output"] for hook in hooks] == ["0", "1", "2", "3"]
    assert server.wait_exit() == 0
    assert not processes_with_tag(mark)
    assert list(temp_dir.iterdir()) == []


def test_jobs_still_running_after_the_drain_timeout_are_canceled(start_server, receiver, temp_dir):
    server, hooks = (
        start_server("faults", "--queue", "2", "--drain-timeout", "500ms"),
        [receiver.path(), receiver.path()],
    )
    mark = tag_of(server)
    for hook in hooks:
        server.start({"how": "waits.swallow"}, webhook=receiver.url + hook)
    receiver.wait(hooks[0])
    server.signal(signal.SIGTERM)
    assert {receiver.wait_terminal(hook)["status"] for hook in hooks} <= {"canceled", "failed"}
    assert server.wait_exit() == 0
    assert not processes_with_tag(mark)
    assert list(temp_dir.iterdir()) == []


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_the_server_at_once(start_server, gate, second):
    server = start_server("faults")
    mark = tag_of(server)
    server.start({"how": "gate", "gate": str(gate)}, id="held")
    wait_for_logs(server, "held")
    server.signal(signal.SIGTERM)
    wait_until(lambda: "press Ctrl-C again" in server.log(), "the notice")
    assert server.process.poll() is None
    server.signal(second)
    server.wait_exit(5)
    wait_until(lambda: not processes_with_tag(mark), "the worker to be gone", 5)


@pytest.mark.parametrize("model", ["faults", "faults_async"])
def test_health_responds_while_a_child_is_stopped(start_server, model):
    """`faults_async` has a health check of its own, which cannot answer now."""
    server = start_server(model)
    with assert_health_answers(server) as watch, paused(*descendants(server.process.pid)):
        asked = watch.responses
        wait_until(lambda: watch.responses >= asked + 3, "three responses")
    server.wait_health("READY")
    assert_serves(server)


def test_a_job_continues_when_its_stopped_child_continues(server, gate):
    with assert_recovers(server):
        server.start({"how": "gate", "gate": str(gate), "text": "late"}, id="frozen")
        wait_for_logs(server, "frozen")
        with paused(*descendants(server.process.pid)):
            gate.open()
            assert server.get("/predictions/frozen").json["status"] == "processing"
        assert wait_for_end(server, "frozen")["output"] == "late"


def test_a_cancel_kills_a_stopped_child(start_server, gate):
    server = start_server("faults", "--cancel-grace", "300ms")
    with assert_recovers(server):
        server.start({"how": "gate", "gate": str(gate)}, id="frozen")
        wait_for_logs(server, "frozen")
        with paused(*descendants(server.process.pid)):
            assert server.cancel("frozen").status == 200
            assert wait_for_end(server, "frozen")["status"] == "canceled"


def test_the_server_exits_although_its_child_is_stopped(server, gate):
    mark = tag_of(server)
    with paused(*descendants(server.process.pid)):
        server.signal(signal.SIGTERM)
        assert server.wait_exit(10) == 0
        assert not processes_with_tag(mark)


def test_nothing_is_lost_while_the_server_is_stopped(server, gate, receiver):
    hook = receiver.path()
    server.start({"how": "gate", "gate": str(gate), "text": "x"}, id="kept", webhook=receiver.url + hook)
    wait_for_logs(server, "kept")
    with paused(server.process.pid):
        gate.open()
        reply: list = []
        waiting = threading.Thread(target=lambda: reply.append(server.sibling().get("/predictions/kept")))
        waiting.start()
        time.sleep(1.5)
        assert not reply
    waiting.join(10)
    assert reply[0].status == 200
    assert receiver.wait_terminal(hook)["output"] == "x"
    assert [one.json["status"] for one in receiver.received(hook)].count("succeeded") == 1
    with assert_recovers(server):
        pass


def serve_once(env: dict[str, str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        [tidegate_bin(), "serve", MODELS / "echo", "--port", "0"],
        env=tidegate_env() | env,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_a_missing_temporary_folder_is_reported_at_startup(tmp_path):
    done = serve_once({"TMPDIR": str(tmp_path / "absent")})
    assert done.returncode != 0
    assert "TMPDIR" in done.stderr and "panicked" not in done.stderr


def test_a_read_only_temporary_folder_is_reported_at_startup(tmp_path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)], check=True)
    try:
        done = serve_once({"TMPDIR": str(tmp_path)})
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert done.returncode != 0
    assert "TMPDIR" in done.stderr and "panicked" not in done.stderr


class Clock:
    """The wall clock of one server, which the test can move; its monotonic clock stays right."""

    def __init__(self, path: Path) -> None:
        assert FAKETIME, "libfaketime is missing: scripts/apt.sh installs it"
        self.path = path
        self.env = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        # Not for the model: libfaketime spoils Python's sleep, and it is the server's clock that counts.
        self.python = path.with_name("python")
        self.python.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {shim_python()} "$@"\n')
        self.python.chmod(0o755)
        self.set("+0s")

    def set(self, offset: str) -> None:
        start_server = self.path.with_suffix(".new")
        start_server.write_text(offset)
        start_server.rename(self.path)


def times(body: dict) -> list[datetime.datetime]:
    texts = [body.get(name) for name in ("created_at", "started_at", "completed_at")]
    return [datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) for text in texts if text]


@pytest.mark.parametrize("jump", ["+3600s", "-3600s", "-86400s", "+400000000s"])
def test_a_clock_change_neither_ends_jobs_nor_reorders_their_times(
    start_server, gate, receiver, tmp_path, jump
):
    clock, hook = Clock(tmp_path / "clock"), receiver.path()
    server = start_server(
        "faults", "--job-timeout", "50s", "--keep-for", "60s", env=clock.env, python=clock.python
    )
    server.predict({"text": "before"}, id="before")
    with assert_recovers(server):
        server.start(
            {"how": "gate", "gate": str(gate), "text": "across"},
            id="across",
            webhook=receiver.url + hook,
            headers={"Cancel-After": "50s"},
        )
        wait_for_logs(server, "across")
        clock.set(jump)
        assert server.get("/predictions/across").json["status"] == "processing"
        gate.open()
        body = receiver.wait_terminal(hook)
        server.predict({"text": "after"}, id="after")
    assert (body["status"], body["output"]) == ("succeeded", "across")
    assert 0 < body["metrics"]["predict_time"] < 60
    jobs = {id: times(server.get(f"/predictions/{id}").json) for id in ("before", "across", "after")}
    for moments in jobs.values():
        assert len(moments) == 3 and moments == sorted(moments), moments
    moved = abs((jobs["after"][0] - jobs["before"][0]).total_seconds())
    assert moved > 3000, "the clock was not moved at all"


def test_ids_do_not_repeat_when_the_clock_goes_back(start_server, tmp_path):
    clock = Clock(tmp_path / "clock")
    server = start_server("faults", env=clock.env, python=clock.python)
    ids = []
    for offset in ("+0s", "-10s", "+0s", "-10s", "-3600s"):
        clock.set(offset)
        ids += [server.predict({"text": "x"}).json["id"] for _ in range(20)]
    assert len(set(ids)) == len(ids)


def test_restarts_under_load_leak_nothing(start_server, temp_dir, receiver):
    """Each accepted job gets its end although the server goes away under it."""
    marks, accepted = [], []
    for number in range(8):
        server = start_server("faults", "--queue", "10")
        marks.append(tag_of(server))
        for job in range(5):
            hook = receiver.path()
            server.start({"text": f"{number}.{job}"}, webhook=receiver.url + hook)
            accepted.append(hook)
        server.signal(signal.SIGTERM)
        assert server.wait_exit() == 0
    assert {receiver.wait_terminal(hook)["status"] for hook in accepted} == {"succeeded"}
    assert not [pid for mark in marks for pid in processes_with_tag(mark)]
    assert list(temp_dir.iterdir()) == []


def test_the_folder_of_a_killed_server_does_not_affect_the_next_server(start_server, temp_dir):
    first = start_server("faults")
    send_signal(first.process.pid, signal.SIGKILL)
    first.wait_exit()
    for path in temp_dir.iterdir():
        assert path.stat().st_mode & 0o077 == 0, "what it leaves is private"
    second = start_server("faults")
    with assert_recovers(second):
        pass
