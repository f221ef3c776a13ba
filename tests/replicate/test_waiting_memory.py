"""Waiting predictions use bounded memory."""

from datetime import datetime
from pathlib import Path

import pytest
from waiting import wait_until

COUNT, SIZE = 1000, 200_000
#: What waits is two hundred megabytes; the server may have half of it for everything that it does.
BOUND = COUNT * SIZE // 2
#: So many run, and no more.
SERVED = 100


def resident(served) -> int:
    """Anonymous memory of the server, in bytes."""
    for line in Path(f"/proc/{served.server.process.pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the server has no memory")


def text(number: int) -> str:
    return f"{number:09} " * (SIZE // 10)


def begun(served, id):
    return datetime.fromisoformat(served.show(id)["started_at"])


@pytest.mark.timeout(300)
def test_a_thousand_waiting_large_inputs_use_bounded_memory(serve_model, receiver, tmp_path):
    gates, path = [tmp_path / "gate-0", tmp_path / "gate-1"], receiver.path()
    server = serve_model("echo", "--waiting-memory", "16MiB")
    server.create({"gate": str(gates[0])})
    hook = {"webhook": receiver.url + path, "webhook_events_filter": ["completed"]}
    inputs = [{"text": text(n), **({"gate": str(gates[1])} if n == SERVED else {})} for n in range(COUNT)]
    ids = []
    for n, input in enumerate(inputs):
        reply = server.create(input, **(hook if n == COUNT - 2 else {}))
        assert reply.status == 201, str(reply)
        ids.append(reply.json["id"])
    assert resident(server) < BOUND
    assert [server.show(ids[n])["input"] for n in (0, COUNT // 2, COUNT - 1)] == [
        inputs[n] for n in (0, COUNT // 2, COUNT - 1)
    ]
    assert server.python.predictions.list().results[0].input == inputs[-1]
    server.kill()

    server = serve_model("echo", "--waiting-memory", "16MiB", until=("READY", "BUSY"))
    assert resident(server) < BOUND
    assert server.show(ids[-1])["input"] == inputs[-1]
    # One that is in the store is canceled, and the message about it says what it was to do.
    assert server.python.predictions.cancel(ids[COUNT - 2]).status in ("canceled", "starting")
    response = receiver.wait_terminal(path)
    assert (response["status"], response["input"]) == ("canceled", inputs[COUNT - 2])
    gates[0].touch()
    wait_until(lambda: server.show(ids[SERVED])["status"] == "processing", "the first to run", timeout=120)
    assert [server.show(id)["output"] for id in ids[:SERVED]] == [input["text"] for input in inputs[:SERVED]]
    begins = [begun(server, id) for id in ids[: SERVED + 1]]
    assert begins == sorted(begins)
    assert {server.show(ids[n])["status"] for n in (SERVED + 1, COUNT // 2, COUNT - 1)} == {"starting"}
    assert resident(server) < BOUND


def test_without_a_data_folder_waiting_inputs_are_limited_by_memory(serve_model, tmp_path):
    gate = tmp_path / "gate"
    server = serve_model("echo", "--waiting-memory", "1MiB", env={"TIDEGATE_DATA_DIR": "none"})
    server.create({"gate": str(gate)})
    replies = [server.create({"text": text(n)}) for n in range(7)]
    assert [reply.status for reply in replies] == [201] * 5 + [429] * 2
    assert "the queue is full" in replies[-1].json["detail"]
    assert replies[-1].headers["Retry-After"] == "1"
    gate.touch()
    taken = [reply.json["id"] for reply in replies[:5]]
    wait_until(lambda: server.show(taken[-1])["status"] == "succeeded", "all to run")
    assert [server.show(id)["output"] for id in taken] == [text(n) for n in range(5)]
    assert server.create({"text": text(0)}).status == 201
