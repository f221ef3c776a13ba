"""Rows A1, A2, A3, A5, A13, A14 of docs/reliability.md: children that die, and limits that kill them."""

import signal
import time

import pytest
from footprint import (
    assert_health_answers,
    assert_recovers,
    assert_serves,
    assert_slot_count,
    processes_with_tag,
    tag_of,
    tagged_processes,
    wait_for_logs,
)
from http_client import wait_for_end
from processes import descendants, is_alive, send_signal
from waiting import wait_until


def worker_of(server) -> int:
    (worker,) = descendants(server.process.pid)
    return worker


def test_a_killed_idle_child_is_replaced_and_health_shows_it(server):
    with assert_recovers(server) as watch:
        send_signal(worker_of(server), signal.SIGKILL)
        # A request at this moment gets a result or a refusal, and never hangs.
        reply = server.post("/predictions", {"input": {"text": "x"}}, timeout=10)
        assert reply.status in (200, 503), str(reply)
        assert_serves(server, within=10)
    assert set(watch.statuses) <= {"READY", "STARTING", "BUSY"}


def test_every_killed_child_is_replaced(start_server):
    server = start_server("faults", "--workers", "3")
    with assert_recovers(server):
        for worker in descendants(server.process.pid):
            send_signal(worker, signal.SIGKILL)
        wait_until(lambda: len(descendants(server.process.pid)) == 3, "three workers", 10)
        wait_until(lambda: server.health()["status"] == "READY", "them to be ready", 10)
    wait_until(lambda: three_run_at_once(server), "three slots", 10)


def three_run_at_once(server) -> bool:
    try:
        assert_slot_count(server, 3)
    except AssertionError:
        return False  # not all of them are up yet
    return True


@pytest.mark.usefixtures("no_oom_kills")
def test_jobs_of_a_killed_child_fail_and_its_slots_return(start_server, gate, receiver):
    server = start_server("faults_async")
    hooks = [receiver.path() for _ in range(4)]
    with assert_recovers(server, slots=4):
        for hook in hooks:
            server.start({"how": "gate", "gate": str(gate)}, webhook=receiver.url + hook)
            receiver.wait(hook)
        send_signal(worker_of(server), signal.SIGKILL)
        bodies = [receiver.wait_terminal(hook) for hook in hooks]
    assert {(body["status"], body["error"]) for body in bodies} == {("failed", "Worker crashed")}
    for hook in hooks:
        assert [one.json["status"] for one in receiver.received(hook)].count("failed") == 1


def test_only_jobs_of_the_killed_child_fail(start_server, gates):
    server = start_server("faults", "--workers", "2")
    with assert_recovers(server):
        for number in (0, 1):
            server.start({"how": "gate", "gate": str(gates[number]), "text": "x"}, id=f"job{number}")
        for number in (0, 1):
            wait_for_logs(server, f"job{number}")
        send_signal(descendants(server.process.pid)[0], signal.SIGKILL)
        for gate in gates:
            gate.open()
        states = sorted(wait_for_end(server, f"job{number}")["status"] for number in (0, 1))
    assert states == ["failed", "succeeded"]


def test_queued_jobs_run_after_a_child_died(start_server, gate, receiver):
    server, hooks = start_server("faults", "--queue", "5"), [receiver.path() for _ in range(4)]
    with assert_recovers(server):
        server.start({"how": "gate", "gate": str(gate)}, id="victim")
        wait_for_logs(server, "victim")
        for number, hook in enumerate(hooks):
            server.start({"text": str(number)}, webhook=receiver.url + hook)
        send_signal(worker_of(server), signal.SIGKILL)
        outputs = [receiver.wait_terminal(hook).get("output") for hook in hooks]
    assert outputs == [f"echo {number}" for number in range(4)]
    assert wait_for_end(server, "victim")["status"] == "failed"


def test_a_child_killed_during_setup_is_a_failed_setup(start_server, gate):
    server = start_server("setup_slow", env={"SETUP_GATE": str(gate)}, until=("STARTING",))
    wait_until(lambda: "still loading" in server.log(), "setup to run")
    with assert_health_answers(server):
        send_signal(worker_of(server), signal.SIGKILL)
        health = server.wait_health("SETUP_FAILED", timeout=10)
    assert "still loading" in health["setup"]["logs"]
    assert server.post("/predictions", {"input": {}}).status == 503


@pytest.mark.parametrize("model", ["setup_fails", "setup_crashes"])
def test_health_responds_while_setup_fails(start_server, model):
    server = start_server(model)
    with assert_health_answers(server):
        assert server.post("/predictions", {"input": {}}).status == 503
    assert not descendants(server.process.pid)


@pytest.mark.parametrize("how", ["idle", "waits.sleep", "waits.gil", "waits.busy", "waits.swallow"])
def test_children_die_with_their_server(server, how):
    mark = tag_of(server)
    if how != "idle":
        server.start({"how": how, "number": 600}, id="orphan")
        wait_for_logs(server, "orphan")
    workers = tagged_processes(server)
    send_signal(server.process.pid, signal.SIGKILL)
    server.wait_exit()
    wait_until(lambda: not any(is_alive(pid) for pid in workers), "the worker to be gone", 5)
    assert not processes_with_tag(mark)


@pytest.mark.usefixtures("oom_kills")
@pytest.mark.parametrize("model", ["faults", "faults_async"])
def test_a_job_killed_for_memory_reports_it(start_server, cgroup, receiver, model):
    server, hook = start_server(model, "--workers", "2"), receiver.path()
    group = cgroup("memory", memory__limit_in_bytes=80 << 20)
    with assert_recovers(server):
        for worker in descendants(server.process.pid):
            (group / "cgroup.procs").write_text(str(worker))
        how = "deaths.memory" if model == "faults" else "memory"
        server.start({"how": how, "number": 500}, webhook=receiver.url + hook)
        body = receiver.wait_terminal(hook, timeout=30)
        assert body["status"] == "failed"
        assert "out of memory" in body["error"]


@pytest.mark.usefixtures("no_oom_kills")
def test_a_child_killed_by_a_signal_is_not_reported_as_out_of_memory(server, gate):
    server.start({"how": "gate", "gate": str(gate)}, id="victim")
    wait_for_logs(server, "victim")
    send_signal(worker_of(server), signal.SIGKILL)
    assert "memory" not in wait_for_end(server, "victim")["error"]


def test_the_memory_limit_fails_the_job_and_keeps_the_child(start_server, receiver):
    server, hook = start_server("faults", "--worker-memory", "300MiB"), receiver.path()
    worker = worker_of(server)
    with assert_recovers(server):
        server.start({"how": "deaths.memory", "number": 1000}, webhook=receiver.url + hook)
        body = receiver.wait_terminal(hook, timeout=30)
    assert body["status"] == "failed" and "MemoryError" in body["error"]
    assert worker_of(server) == worker


def test_a_fork_bomb_is_limited_and_does_not_affect_the_server(start_server_as_user):
    server = start_server_as_user("faults", "--worker-processes", "24")
    with assert_recovers(server):
        body = server.predict({"how": "processes.fork_bomb", "number": 300}, timeout=30).json
    assert body["output"]["error"] == "BlockingIOError"
    assert body["output"]["forked"] < 24


def test_a_child_at_its_process_limit_can_be_replaced(start_server_as_user):
    server = start_server_as_user("faults", "--worker-processes", "24")
    with assert_recovers(server):
        for _ in range(30):
            if server.predict({"how": "processes.fork"}).json["status"] == "failed":
                break
        else:
            raise AssertionError("the limit was never met")
        server.predict({"how": "deaths.exit"})
        assert_serves(server)


def test_a_limit_that_would_have_no_effect_is_refused(start_server):
    with pytest.raises(AssertionError, match="--run-as"):
        start_server("faults", "--worker-processes", "24")


def test_the_pid_limit_of_a_control_group_fails_only_the_job(server, cgroup):
    group = cgroup("pids", pids__max=20)
    with assert_recovers(server):
        (group / "cgroup.procs").write_text(str(worker_of(server)))
        body = server.predict({"how": "processes.fork_bomb", "number": 300}, timeout=30).json
        assert body["output"]["error"] == "BlockingIOError"


def test_many_child_deaths_leak_no_descriptors_and_files(start_server):
    server = start_server("faults")
    with assert_recovers(server):
        began = time.monotonic()
        for number in range(12):
            wait_until(lambda: server.health()["status"] == "READY", "a child", 10)
            assert server.predict({"how": "deaths.exit"}).json["status"] == "failed", number
        assert time.monotonic() - began < 50
