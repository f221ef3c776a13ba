"""The model's own health check with many concurrent clients."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from waiting import wait_until

MODEL = """
import os, time

class Predictor:
    def healthcheck(self) -> bool:
        with open(os.environ["CALLS"], "a") as calls:
            calls.write("called\\n")
        while not os.path.exists(os.environ["GATE"]):
            time.sleep(0.005)
        return True

    def predict(self) -> str:
        return "ok"
"""


def test_simultaneous_checks_share_one_call(start_server, tmp_path, gate):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (folder / "predict.py").write_text(MODEL)
    calls = tmp_path / "calls"
    server = start_server(folder, env={"CALLS": str(calls), "GATE": str(gate)}, until=())
    wait_until(lambda: "ready after" in server.log(), "the model to be ready")

    with ThreadPoolExecutor(8) as pool:
        checks = [pool.submit(lambda: server.sibling().get("/health-check").json["status"]) for _ in range(8)]
        wait_until(calls.exists, "the check to begin")
        wait_until(lambda: connections(server.port) >= 8, "all to have asked")
        gate.open()
        assert {check.result() for check in checks} == {"READY"}
    first = calls.read_text().count("called")
    assert first < 8, "each asked the model by itself"

    assert server.health()["status"] == "READY"
    assert calls.read_text().count("called") == first + 1, "an old answer was given to a new caller"


def connections(port: int) -> int:
    """Established connections to the server's port, as the kernel sees them."""
    local = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(local) and row[3] == "01" for row in rows)
