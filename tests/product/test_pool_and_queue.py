"""`--workers` for parallel sync models, `--queue` for waiting requests."""

import os
import signal
import socket

from waiting import wait_until


def holds(server, gate, id, **options):
    """An async prediction that has reached user code and waits at the gate."""
    server.start({"gate": str(gate), "log": "in"}, id=id, **options)
    wait_until(lambda: server.snapshot(id)["logs"], f"{id} to reach user code")


def test_two_children_run_two_sync_jobs_at_once(start_server, gates):
    server = start_server("echo", "--workers", "2")
    holds(server, gates[0], "one")
    assert server.health()["status"] == "READY"
    holds(server, gates[1], "two")
    assert server.health()["status"] == "BUSY"
    assert server.post("/predictions", {"input": {}}).status == 409


def test_two_children_are_two_processes(start_server, gates):
    server = start_server("crash", "--workers", "2")
    with (
        server.in_background({"how": "pid", "gate": str(gates[0])}) as first,
        server.in_background({"how": "pid", "gate": str(gates[1])}) as second,
    ):
        server.wait_health("BUSY")
        for gate in gates:
            gate.open()
        assert first.reply().json["output"] != second.reply().json["output"]


def test_a_dead_child_does_not_affect_the_other(start_server, gates):
    server = start_server("crash", "--workers", "2")
    pid = int(server.predict({"how": "pid"}).json["output"].split()[1])
    with server.in_background({"gate": str(gates[0])}, id="held") as job:
        wait_until(lambda: server.get("/predictions/held").status == 200, "the job to run")
        # One of the two is busy; the death of either leaves one job at most to fail.
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: server.post("/predictions", {"input": {}}).status == 200, "a worker to answer")
        gates[0].open()
        reply = job.reply().json
    assert reply["status"] == "succeeded" or reply["error"] == "Worker crashed"
    server.wait_health("READY")


def test_requests_wait_in_the_queue(start_server, gate, receiver):
    server = start_server("echo", "--queue", "4")
    holds(server, gate, "front")
    hooks = [receiver.path() for _ in range(4)]
    for number, hook in enumerate(hooks):
        server.start(
            {"text": f"t{number}"},
            id=f"q{number}",
            webhook=receiver.url + hook,
            webhook_events_filter=["completed"],
        )
    assert server.post("/predictions", {"input": {}}).status == 409
    gate.open()
    assert [receiver.wait_terminal(hook)["output"] for hook in hooks] == ["t0", "t1", "t2", "t3"]
    starts = [server.get(f"/predictions/q{number}").json["started_at"] for number in range(4)]
    assert starts == sorted(starts)


def test_a_sync_request_waits_in_the_queue(start_server, gate):
    server = start_server("echo", "--queue", "1")
    holds(server, gate, "front")
    with server.in_background({"text": "patient"}, id="patient") as job:
        wait_until(
            lambda: server.get("/predictions/patient").status == 200, "the request to stand in the queue"
        )
        assert server.post("/predictions", {"input": {}}).status == 409
        gate.open()
        assert job.reply().json["output"] == "patient"


def test_a_waiting_job_can_be_canceled(start_server, gate, receiver):
    server, hook = start_server("echo", "--queue", "1"), receiver.path()
    holds(server, gate, "front")
    server.start(id="waiting", webhook=receiver.url + hook, webhook_events_filter=["completed"])
    assert server.cancel("waiting").status == 200
    assert receiver.wait_terminal(hook)["status"] == "canceled"
    assert server.start(id="takes-its-place").status == 202


def test_a_client_that_disconnects_leaves_the_queue(start_server, gate):
    server = start_server("echo", "--queue", "1")
    holds(server, gate, "front")
    with socket.create_connection(("127.0.0.1", server.port)) as caller:
        caller.sendall(
            b"PUT /predictions/impatient HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
        )
        wait_until(
            lambda: server.get("/predictions/impatient").status == 200, "the request to stand in the queue"
        )
    wait_until(
        lambda: server.predict(id="next", prefer="respond-async").status == 202, "the place to be free"
    )


def test_no_queue_by_default(shared_server, gate):
    server = shared_server("echo")
    holds(server, gate, "alone")
    assert server.post("/predictions", {"input": {}}).status == 409
