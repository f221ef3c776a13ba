"""Rows A1, A2, A3, A5, A13, A14 of docs/reliability.md: processes that die, and limits that kill them."""

import signal
import time

import pytest
from footprint import (
    alive,
    ended,
    fills_every_slot,
    health_answers,
    mark_of,
    marked,
    processes_of,
    running,
    send,
    serves,
    unharmed,
)
from servers import children_of, wait_until


def worker_of(server) -> int:
    (worker,) = children_of(server.process.pid)
    return worker


def test_a1_an_idle_worker_that_is_killed_is_replaced_and_health_never_lies(server):
    with unharmed(server) as watch:
        send(worker_of(server), signal.SIGKILL)
        # Whoever asks now gets an answer or a refusal, and never waits for nobody.
        reply = server.post("/predictions", {"input": {"text": "x"}}, timeout=10)
        assert reply.status in (200, 503), str(reply)
        serves(server, within=10)
    assert set(watch.statuses) <= {"READY", "STARTING", "BUSY"}


def test_a1_every_worker_is_replaced(fresh):
    server = fresh("faults", "--workers", "3")
    with unharmed(server):
        for worker in children_of(server.process.pid):
            send(worker, signal.SIGKILL)
        wait_until(lambda: len(children_of(server.process.pid)) == 3, "three workers", 10)
        wait_until(lambda: server.health()["status"] == "READY", "them to be ready", 10)
    wait_until(lambda: three_run_at_once(server), "three slots", 10)


def three_run_at_once(server) -> bool:
    try:
        fills_every_slot(server, 3)
    except AssertionError:
        return False  # not all of them are up yet
    return True


def test_a2_the_jobs_of_a_killed_worker_fail_and_every_slot_comes_back(fresh, gate, receiver):
    server = fresh("faults_async")
    hooks = [receiver.path() for _ in range(4)]
    with unharmed(server, slots=4):
        for hook in hooks:
            server.start({"how": "gate", "gate": str(gate)}, webhook=receiver.url + hook)
            receiver.wait(hook)
        send(worker_of(server), signal.SIGKILL)
        bodies = [receiver.wait_terminal(hook) for hook in hooks]
    assert {(body["status"], body["error"]) for body in bodies} == {("failed", "Worker crashed")}
    for hook in hooks:
        assert [one.json["status"] for one in receiver.received(hook)].count("failed") == 1


def test_a2_only_the_jobs_of_that_worker_fail(fresh, gates):
    server = fresh("faults", "--workers", "2")
    with unharmed(server):
        for number in (0, 1):
            server.start({"how": "gate", "gate": str(gates[number]), "text": "x"}, id=f"job{number}")
        for number in (0, 1):
            running(server, f"job{number}")
        send(children_of(server.process.pid)[0], signal.SIGKILL)
        for gate in gates:
            gate.open()
        states = sorted(ended(server, f"job{number}")["status"] for number in (0, 1))
    assert states == ["failed", "succeeded"]


def test_a2_the_queue_goes_on_after_a_death(fresh, gate, receiver):
    server, hooks = fresh("faults", "--queue", "5"), [receiver.path() for _ in range(4)]
    with unharmed(server):
        server.start({"how": "gate", "gate": str(gate)}, id="victim")
        running(server, "victim")
        for number, hook in enumerate(hooks):
            server.start({"text": str(number)}, webhook=receiver.url + hook)
        send(worker_of(server), signal.SIGKILL)
        outputs = [receiver.wait_terminal(hook).get("output") for hook in hooks]
    assert outputs == [f"echo {number}" for number in range(4)]
    assert ended(server, "victim")["status"] == "failed"


def test_a3_a_worker_killed_in_its_setup_is_a_failed_setup(fresh, gate):
    server = fresh("setup_slow", env={"SETUP_GATE": str(gate)}, until=("STARTING",))
    wait_until(lambda: "still loading" in server.log(), "setup to run")
    with health_answers(server):
        send(worker_of(server), signal.SIGKILL)
        health = server.wait_health("SETUP_FAILED", timeout=10)
    assert "still loading" in health["setup"]["logs"]
    assert server.post("/predictions", {"input": {}}).status == 503


@pytest.mark.parametrize("model", ["setup_fails", "setup_crashes"])
def test_a3_health_is_answered_while_setup_fails(fresh, model):
    server = fresh(model)
    with health_answers(server):
        assert server.post("/predictions", {"input": {}}).status == 503
    assert not children_of(server.process.pid)


@pytest.mark.parametrize("how", ["idle", "waits.sleep", "waits.gil", "waits.busy", "waits.swallow"])
def test_a5_a_worker_dies_with_its_server(server, how):
    mark = mark_of(server)
    if how != "idle":
        server.start({"how": how, "number": 600}, id="orphan")
        running(server, "orphan")
    workers = processes_of(server)
    send(server.process.pid, signal.SIGKILL)
    server.wait_exit()
    wait_until(lambda: not any(alive(pid) for pid in workers), "the worker to be gone", 5)
    assert not marked(mark)


@pytest.mark.parametrize("model", ["faults", "faults_async"])
def test_a13_a_worker_killed_for_memory_says_so(fresh, cgroup, receiver, model):
    server, hook = fresh(model, "--workers", "2"), receiver.path()
    group = cgroup("memory", memory__limit_in_bytes=80 << 20)
    with unharmed(server):
        for worker in children_of(server.process.pid):
            (group / "cgroup.procs").write_text(str(worker))
        how = "deaths.memory" if model == "faults" else "memory"
        server.start({"how": how, "number": 500}, webhook=receiver.url + hook)
        body = receiver.wait_terminal(hook, timeout=30)
        assert body["status"] == "failed"
        assert "out of memory" in body["error"]


def test_a13_a_worker_killed_by_hand_does_not_speak_of_memory(server, gate):
    server.start({"how": "gate", "gate": str(gate)}, id="victim")
    running(server, "victim")
    send(worker_of(server), signal.SIGKILL)
    assert "memory" not in ended(server, "victim")["error"]


def test_a13_the_memory_limit_of_a_worker_fails_the_job_and_not_the_process(fresh, receiver):
    server, hook = fresh("faults", "--worker-memory", "300MiB"), receiver.path()
    worker = worker_of(server)
    with unharmed(server):
        server.start({"how": "deaths.memory", "number": 1000}, webhook=receiver.url + hook)
        body = receiver.wait_terminal(hook, timeout=30)
    assert body["status"] == "failed" and "MemoryError" in body["error"]
    assert worker_of(server) == worker


def test_a14_a_fork_bomb_meets_its_limit_and_the_server_does_not_notice(as_somebody):
    server = as_somebody("faults", "--worker-processes", "24")
    with unharmed(server):
        body = server.predict({"how": "processes.fork_bomb", "number": 300}, timeout=30).json
    assert body["output"]["error"] == "BlockingIOError"
    assert body["output"]["forked"] < 24


def test_a14_a_worker_at_its_limit_of_processes_can_still_be_replaced(as_somebody):
    server = as_somebody("faults", "--worker-processes", "24")
    with unharmed(server):
        for _ in range(30):
            if server.predict({"how": "processes.fork"}).json["status"] == "failed":
                break
        else:
            raise AssertionError("the limit was never met")
        server.predict({"how": "deaths.exit"})
        serves(server)


def test_a14_a_limit_that_would_have_no_effect_is_refused(fresh):
    with pytest.raises(AssertionError, match="--run-as"):
        fresh("faults", "--worker-processes", "24")


def test_a14_the_pids_of_a_control_group_run_out(server, cgroup):
    group = cgroup("pids", pids__max=20)
    with unharmed(server):
        (group / "cgroup.procs").write_text(str(worker_of(server)))
        body = server.predict({"how": "processes.fork_bomb", "number": 300}, timeout=30).json
        assert body["output"]["error"] == "BlockingIOError"


def test_a19_neither_descriptors_nor_files_drift_over_many_deaths(fresh):
    server = fresh("faults")
    with unharmed(server):
        began = time.monotonic()
        for number in range(12):
            wait_until(lambda: server.health()["status"] == "READY", "a child", 10)
            assert server.predict({"how": "deaths.exit"}).json["status"] == "failed", number
        assert time.monotonic() - began < 50
