"""Many waiting predictions: memory per prediction, and a restart while they are loaded."""

import re
import sqlite3
from pathlib import Path

import pytest
from waiting import wait_until

#: So many predictions wait at first, and then.
FEW, MANY = 10_000, 57_000
#: The most memory that each may take, in bytes.
BOUND = 500


def resident(served) -> int:
    """Anonymous memory of the server, in bytes."""
    status = Path(f"/proc/{served.server.process.pid}/status").read_text()
    return int(re.findall(r"^RssAnon:\s+(\d+) kB$", status, re.M)[0]) * 1024


def waiting(served) -> int:
    text = served.server.get("/metrics").body.decode()
    return sum(int(float(count)) for count in re.findall(r"^tidegate_jobs_waiting\S* (\S+)$", text, re.M))


def multiply(data: str, id: str, numbers: range) -> list[str]:
    """Write copies of a waiting prediction to the store, newer than all others."""
    (database,) = Path(data).rglob("*.db")
    store = sqlite3.connect(database)
    columns = [
        name for _, name, *_ in store.execute("PRAGMA table_info(jobs)") if name not in ("number", "id")
    ]
    (values,) = store.execute(f"SELECT {', '.join(columns)} FROM jobs WHERE id = ?", (id,))
    ((input,),) = store.execute("SELECT json FROM inputs JOIN jobs USING (number) WHERE id = ?", (id,))
    ids, marks = [f"copy{n:022}" for n in numbers], ", ".join("?" * len(columns))
    for copy in ids:
        job = store.execute(
            f"INSERT INTO jobs (id, {', '.join(columns)}) VALUES (?, {marks})", (copy, *values)
        )
        store.execute("INSERT INTO inputs (number, json) VALUES (?, ?)", (job.lastrowid, input))
    store.commit()
    store.close()
    return ids


@pytest.mark.timeout(300)
def test_many_predictions_wait_in_little_memory_and_survive_crashes_while_they_are_loaded(
    serve_model, data, tmp_path
):
    gate = tmp_path / "gate"

    def start():
        return serve_model("echo", until=("STARTING", "READY", "BUSY"))

    server = serve_model("echo")
    running = server.create({"gate": str(gate)}).json["id"]
    wait_until(lambda: server.show(running)["status"] == "processing", "the first to run")
    # Each waits for the gate, so that only the oldest one starts.
    first = server.create({"text": "same", "gate": str(gate)}).json["id"]
    server.kill()
    copies = multiply(data["TIDEGATE_DATA_DIR"], first, range(FEW))
    server = start()
    wait_until(lambda: waiting(server) >= FEW - 1, "all to be loaded", timeout=60)
    few = resident(server)
    server.kill()

    copies += multiply(data["TIDEGATE_DATA_DIR"], first, range(FEW, MANY))
    server = start()
    # All are there, loaded or not.
    assert server.show(copies[-1])["status"] == "starting"
    server.kill()

    server = start()
    canceled = copies.pop()
    assert server.python.predictions.cancel(canceled).status in ("canceled", "starting")
    newer = server.create({"text": "newer"}).json["id"]
    wait_until(lambda: waiting(server) >= MANY - 1, "all to be loaded", timeout=120)
    assert (resident(server) - few) / (MANY - FEW) < BOUND
    wait_until(lambda: server.show(canceled)["status"] == "canceled", "the canceled one to end")

    gate.touch()
    order = [first, *copies[:20]]
    wait_until(lambda: server.show(order[-1])["status"] == "succeeded", "the oldest to run", timeout=60)
    begins = [server.show(id)["started_at"] for id in order]
    assert begins == sorted(begins)
    assert [server.show(id)["status"] for id in (copies[-1], newer)] == ["starting"] * 2
