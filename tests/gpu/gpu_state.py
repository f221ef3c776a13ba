"""What a server says about its GPUs."""

from __future__ import annotations

from typing import Any

from server_process import Server
from waiting import wait_until


def listed(server: Server) -> list[dict[str, Any]]:
    reply = server.get("/admin/gpus")
    assert reply.status == 200, str(reply)
    return reply.json["gpus"]


def metrics(server: Server) -> dict[str, float]:
    lines = server.get("/metrics").body.decode().splitlines()
    samples = [line.rsplit(" ", 1) for line in lines if line.startswith("tidegate_gpu")]
    return {name: float(value) for name, value in samples}


def wait_gpu(server: Server, number: int, **expected: object) -> dict[str, Any]:
    """Wait until a GPU of the list has these values."""

    def probe() -> dict[str, Any] | None:
        gpu = listed(server)[number]
        return gpu if {name: gpu[name] for name in expected} == expected else None

    return wait_until(probe, f"GPU {number} with {expected}")
