"""Processes that are added because of the load use GPU memory that nothing else needs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from server_process import Server
from waiting import wait_until

QUICK = ("--queue", "50", "--scale-up-after", "100ms", "--scale-down-after", "1h")


def process_of(server: Server, model: str, gate: object = "") -> int:
    reply = server.post(f"/models/local/{model}/predictions", {"input": {"gate": str(gate)}})
    assert (reply.status, reply.json.get("status")) == (200, "succeeded"), str(reply)
    return reply.json["output"]


@contextmanager
def load(server: Server, model: str, gate: Any, requests: int = 4) -> Iterator[set[int]]:
    """Requests that run until the gate opens; at the end, the processes that ran them."""
    processes: set[int] = set()
    threads = [
        threading.Thread(target=lambda: processes.add(process_of(server.sibling(), model, gate)))
        for _ in range(requests)
    ]
    for thread in threads:
        thread.start()
    try:
        yield processes
    finally:
        gate.open()
        for thread in threads:
            thread.join(30)


def children(server: Server, model: str) -> list[dict[str, Any]]:
    listed = server.get("/admin/children").json["children"]
    return [child for child in listed if child["model"] == f"local/{model}" and "spare" not in child]


def running(server: Server, model: str) -> set[int]:
    return {child["pid"] for child in children(server, model) if child["state"] == "ready"}


def wait_refused(server: Server, model: str) -> dict[str, Any]:
    def probe() -> dict[str, Any] | None:
        return next((child for child in children(server, model) if child["state"] == "setup_failed"), None)

    return wait_until(probe, "a process that gets no memory")


def wanted(server: Server, model: str) -> int:
    listed = server.get("/admin/models").json["models"]
    return next(one["children_wanted"] for one in listed if one["model"] == f"local/{model}")


def test_a_process_for_which_there_is_no_memory_is_a_warning(gpus, serve_gpus, models, gate):
    gpus.card(0)
    flags = ("--queue", "50", "--scale-up-after", "100ms", "--scale-down-after", "300ms")
    server = serve_gpus(models / "first", "--workers", "1..4", *flags)
    with load(server, "first", gate, 6):
        refused = wait_refused(server, "first")
        assert "30.0 GiB of GPU memory" in refused["last_end"]
        assert len(running(server, "first")) == 2
        assert wanted(server, "first") == 2
    assert "failed to start another process" in server.log()
    deaths = [line for line in server.get("/metrics").body.decode().splitlines() if 'cause="setup"' in line]
    assert [line.split()[-1] for line in deaths if "deaths_total" in line] == ["0"]
    wait_until(lambda: len(running(server, "first")) == 1, "the second process to be stopped")


def test_a_process_for_which_there_is_no_memory_takes_no_spare(gpus, serve_gpus, models, gate):
    gpus.card(0)
    server = serve_gpus(models / "first", "--workers", "1..4", "--spare", "imported", *QUICK)

    def spare() -> int | None:
        listed = server.get("/admin/children").json["children"]
        ready = (child["pid"] for child in listed if "spare" in child and child["state"] == "ready")
        return next(ready, None)

    wait_until(spare, "the spare")
    with load(server, "first", gate):
        wait_refused(server, "first")
        assert len(running(server, "first")) == 2
        wait_until(spare, "the next spare")


def test_a_model_is_not_unloaded_for_its_own_copies(gpus, serve_gpus, models, gate):
    gpus.card(0)
    server = serve_gpus(models, "--lazy", "--workers", "1..4", *QUICK, until=())
    server.wait_health("READY")
    first = process_of(server, "first")
    with load(server, "first", gate) as processes:
        wait_refused(server, "first")
        before = running(server, "first")
        assert len(before) == 2 and first in before
    assert processes == before


def test_no_other_model_is_unloaded_for_a_copy(gpus, serve_gpus, models, gate):
    gpus.card(0)
    server = serve_gpus(models, "--lazy", "--gpu-memory", "30GiB", "--workers", "1..2", *QUICK, until=())
    server.wait_health("READY")
    second = process_of(server, "second")
    with load(server, "first", gate):
        wait_refused(server, "first")
        assert process_of(server, "second") == second
        assert len(running(server, "first")) == 1


def test_an_idle_copy_gives_its_memory_to_a_model(gpus, serve_gpus, models, gate):
    gpus.card(0)
    server = serve_gpus(models, "--lazy", "--gpu-memory", "30GiB", "--workers", "1..2", *QUICK, until=())
    server.wait_health("READY")
    first = process_of(server, "first")
    with load(server, "first", gate):
        wait_until(lambda: len(running(server, "first")) == 2, "the copy")
    second = process_of(server, "second")
    wait_until(lambda: running(server, "first") == {first}, "the end of the copy")
    assert running(server, "second") == {second}
    assert wanted(server, "first") == 1
    assert process_of(server, "first") == first


def test_a_busy_copy_finishes_its_jobs_and_then_gives_its_memory_to_a_model(gpus, serve_gpus, models, gates):
    gpus.card(0)
    server = serve_gpus(models, "--lazy", "--gpu-memory", "30GiB", "--workers", "1..2", *QUICK, until=())
    server.wait_health("READY")
    first = process_of(server, "first")
    answers: list[int] = []
    with load(server, "first", gates[0], 2) as processes:
        wait_until(lambda: sum(child["jobs"] for child in children(server, "first")) == 2, "both jobs")
        both = running(server, "first")
        waits = threading.Thread(target=lambda: answers.append(process_of(server.sibling(), "second")))
        waits.start()
        wait_until(lambda: wanted(server, "first") == 1, "the copy is given up")
        # It gets no more jobs.
        gates[0].open()
        waits.join(30)
    assert processes == both
    assert running(server, "first") == {first}
    assert running(server, "second") == set(answers)
