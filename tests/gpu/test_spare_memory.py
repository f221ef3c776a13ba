"""The GPU memory of a loaded spare: models come before it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from fake_gpus import MODEL
from server_process import Server
from waiting import wait_until


def process_of(server: Server, model: str) -> int:
    reply = server.post(f"/models/local/{model}/predictions", {"input": {}})
    assert (reply.status, reply.json.get("status")) == (200, "succeeded"), str(reply)
    return reply.json["output"]


def children(server: Server) -> list[dict[str, Any]]:
    return server.get("/admin/children").json["children"]


def wait_spare(server: Server, model: str, state: str) -> dict[str, Any]:
    def probe() -> dict[str, Any] | None:
        spares = (child for child in children(server) if child.get("spare") == "loaded")
        return next(
            (one for one in spares if one["model"] == f"local/{model}" and one["state"] == state), None
        )

    return wait_until(probe, f"the spare of {model} is {state}")


def test_a_model_takes_the_memory_of_a_spare_and_not_of_a_model(gpus, serve_gpus, models):
    gpus.card(0)
    server = serve_gpus(models, "--lazy", "--spare", "loaded", "--gpu-memory", "30GiB", until=())
    server.wait_health("READY")
    first = process_of(server, "first")
    wait_spare(server, "first", "ready")
    second = process_of(server, "second")
    wait_spare(server, "first", "setup_failed")
    assert process_of(server, "first") == first
    assert process_of(server, "second") == second


def test_a_spare_that_took_over_keeps_its_memory(gpus, serve_gpus, models):
    gpus.card(0)
    server = serve_gpus(models, "--lazy", "--spare", "loaded", "--gpu-memory", "30GiB", until=())
    server.wait_health("READY")
    first = process_of(server, "first")
    spare = wait_spare(server, "first", "ready")["pid"]
    os.kill(first, signal.SIGKILL)
    wait_until(
        lambda: any(child["pid"] == spare and "spare" not in child for child in children(server)),
        "the spare has taken over",
    )
    second = process_of(server, "second")
    assert process_of(server, "first") == spare
    assert process_of(server, "second") == second


def test_a_spare_on_a_card_that_fails_is_ended(gpus, serve_gpus):
    gpus.card(0)
    gpus.card(1)
    server = serve_gpus(MODEL, "--spare", "loaded", "--gpu-memory", "50GiB")
    (child,) = [child for child in children(server) if "spare" not in child]
    spare = wait_until(
        lambda: next((c for c in children(server) if c.get("spare") and c["state"] == "ready"), None),
        "a spare",
    )
    # A card has room for one of them.
    assert (child["gpu"], spare["gpu"]) == ("0", "1")
    on_gpus = {gpu["id"]: gpu["children"] for gpu in server.get("/admin/gpus").json["gpus"]}
    assert [process.get("spare") for process in on_gpus["1"]] == ["loaded"]
    assert ["spare" in process for process in on_gpus["0"]] == [False]
    gpus.xid(1, 79)
    wait_until(
        lambda: any(c.get("spare") and c["state"] == "setup_failed" for c in children(server)),
        "the spare is ended",
    )
    assert {c["pid"] for c in children(server) if "spare" not in c} == {child["pid"]}
    wait_until(lambda: not Path(f"/proc/{spare['pid']}").exists(), "its process has exited")
