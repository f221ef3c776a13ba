"""spec/cog.md §13: signals, /shutdown, crashes."""

import os
import signal

import pytest
from processes import descendants
from waiting import wait_until


@pytest.fixture
def server(serve_fresh):
    return serve_fresh("crash")


def test_sigterm_exits_cleanly(server):
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0


def test_sigint_exits(server):
    server.signal(signal.SIGINT)
    # Deliberate difference: Cog dies by the signal, on a busy machine it may exit with 0; an orderly exit is
    # as good to a shell.
    assert server.wait_exit() in ((-2, 0) if server.is_cog else (0, 130))


def test_shutdown_endpoint(server):
    reply = server.post("/shutdown")
    assert (reply.status, reply.json) == (200, {})
    assert server.wait_exit() == 0


def test_the_child_ends_with_the_server(server):
    children = descendants(server.process.pid)
    assert children
    server.signal(signal.SIGTERM)
    server.wait_exit()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children), "the children to end")


def test_the_child_ends_when_the_server_is_killed(server):
    children = descendants(server.process.pid)
    assert children
    server.process.kill()
    server.wait_exit()
    wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children), "the children to end")


def test_sigterm_answers_the_running_sync_prediction(server, gate):
    with server.in_background({"gate": str(gate)}) as job:
        server.wait_health("BUSY")
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.refuses_connections(), "the listener to close")
        gate.open()
        assert job.reply().json["status"] == "succeeded"
    assert server.wait_exit() == 0


def test_await_explicit_shutdown(serve_fresh):
    server = serve_fresh("crash", flags=("--await-explicit-shutdown", "true"))
    server.signal(signal.SIGTERM)
    assert server.predict().json["output"] == "alive"
    assert server.post("/shutdown").status == 200
    assert server.wait_exit() == 0


@pytest.mark.parametrize("how", ["sys_exit", "interrupt", "recursion"])
def test_soft_exits_only_fail_the_prediction(serve, how):
    server = serve("crash")
    pid = server.predict({"how": "pid"}).json["output"]
    assert server.predict({"how": how}).json["status"] == "failed"
    assert server.predict({"how": "pid"}).json["output"] == pid


@pytest.mark.usefixtures("no_oom_kills")
@pytest.mark.parametrize("how", ["exit", "segfault", "kill"])
def test_crash(server, how):
    reply = server.predict({"how": how}, id="crashed")
    assert reply.status == 200
    assert reply.json["status"] == "failed"
    assert reply.json["error"] == "Worker crashed"
    # Deliberate difference: Cog stays UNHEALTHY for good; tidegate starts another child.
    server.wait_health("UNHEALTHY" if server.is_cog else "READY")
    assert server.post("/predictions", {"input": {}}).status == (409 if server.is_cog else 200)


def test_crash_sends_the_webhook(server, receiver):
    hook = receiver.path()
    server.start({"how": "exit"}, webhook=receiver.url + hook, webhook_events_filter=["completed"])
    body = receiver.wait_terminal(hook)
    assert (body["status"], body["error"]) == ("failed", "Worker crashed")
