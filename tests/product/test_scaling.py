"""`--workers MIN..MAX`: the number of processes follows the load."""

from __future__ import annotations

import subprocess

import pytest
from environment import tidegate_bin
from processes import is_alive
from waiting import wait_until

MODEL = "counts_setups"
FAST = ("--scale-up-after", "100ms", "--scale-down-after", "300ms")
NEVER_DOWN = ("--scale-up-after", "100ms", "--scale-down-after", "1h")


@pytest.fixture
def counts(tmp_path):
    """The folder in which the model counts."""
    folder = tmp_path / "counts"
    folder.mkdir()
    return folder


@pytest.fixture
def scaled(start_server, counts):
    """Start a server whose model counts its setups."""
    return lambda *flags: start_server(MODEL, *flags, env={"COUNTS": str(counts)})


def setups(counts) -> list[int]:
    file = counts / "setups"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def children(server):
    return [child for child in server.get("/admin/children").json["children"] if "spare" not in child]


def ready(server) -> int:
    return sum(child["state"] == "ready" for child in children(server))


def wanted(server) -> int:
    [model] = server.get("/admin/models").json["models"]
    return model["children_wanted"]


def metric(server, name: str) -> float:
    lines = server.get("/metrics").body.decode().splitlines()
    [value] = [line.split()[-1] for line in lines if line.startswith(name + "{")]
    return float(value)


def test_waiting_callers_get_another_process_which_is_stopped_later(scaled, gates):
    server = scaled("--workers", "1..2", "--queue", "4", *FAST)
    assert (ready(server), wanted(server)) == (1, 1)
    with (
        server.in_background({"gate": str(gates[0])}) as first,
        server.in_background({"gate": str(gates[1])}) as second,
    ):
        wait_until(lambda: ready(server) == 2, "another process")
        assert wanted(server) == 2
        wait_until(lambda: server.open_jobs() == 2, "both requests to arrive")
        busy = [child["pid"] for child in children(server) if child["jobs"]]
        # A process with a job is never stopped, however long it takes.
        wait_until(lambda: sum(child["jobs"] for child in children(server)) == 2, "both jobs to run")
        gates[0].open()
        gates[1].open()
        pids = {first.reply().json["output"], second.reply().json["output"]}
    assert len(pids) == 2 and set(busy) <= pids
    wait_until(lambda: ready(server) == 1 and wanted(server) == 1, "the second process to be stopped")
    [kept] = children(server)
    [stopped] = pids - {kept["pid"]}
    wait_until(lambda: not is_alive(stopped), "its process to exit")
    assert server.predict().json["output"] == kept["pid"]
    assert metric(server, "tidegate_child_restarts_total") == 0


def test_callers_that_are_refused_scale_up_too(scaled, gate):
    server = scaled("--workers", "1..2", *NEVER_DOWN)
    with server.in_background({"gate": str(gate)}):
        server.wait_health("BUSY")
        # Without --queue, no request waits; the client repeats its own.
        wait_until(lambda: server.post("/predictions", {"input": {}}).status == 200, "a free process")
        assert ready(server) == 2
        gate.open()


def test_one_process_is_added_at_a_time_and_never_more_than_the_maximum(scaled, gate, counts):
    server = scaled("--workers", "1..3", "--queue", "9", *NEVER_DOWN)
    (counts / "setup-gate").touch()
    for number in range(6):
        server.start({"gate": str(gate)}, id=f"job{number}")
    wait_until(lambda: len(setups(counts)) == 2, "another setup")
    assert wanted(server) == 2
    (counts / "setup-gate").unlink()
    wait_until(lambda: ready(server) == 3, "all processes")
    # Callers still wait: an external scaler sees that another server could help.
    wait_until(lambda: metric(server, "tidegate_children_wanted") == 4, "the shortage to be reported")
    assert len(children(server)) == 3
    gate.open()
    wait_until(lambda: server.open_jobs() == 0, "the jobs to end")
    wait_until(lambda: metric(server, "tidegate_children_wanted") == 3, "the end of the shortage")
    assert len(setups(counts)) == 3


def test_the_first_process_sets_up_alone(start_server, counts):
    (counts / "setup-gate").touch()
    server = start_server(MODEL, "--workers", "2..3", env={"COUNTS": str(counts)}, until=("STARTING",))
    wait_until(lambda: setups(counts), "the first setup")
    assert [child["state"] for child in children(server)] == ["starting", "starting"]
    assert len({child.get("pid") for child in children(server)} - {None}) == 1
    (counts / "setup-gate").unlink()
    server.wait_health("READY")
    assert len(setups(counts)) == 2


def test_a_process_that_cannot_be_added_is_a_warning(scaled, gate, counts):
    server = scaled("--workers", "1..2", "--queue", "4", *NEVER_DOWN)
    (counts / "setup-fails").touch()
    with (
        server.in_background({"gate": str(gate)}) as first,
        server.in_background({"gate": str(gate)}) as second,
    ):
        wait_until(
            lambda: [child["state"] for child in children(server)] == ["ready", "setup_failed"],
            "the failed setup",
        )
        assert "no memory for another copy" in children(server)[1]["last_end"]
        assert server.health()["status"] == "BUSY"
        gate.open()
        assert first.reply().json["status"] == second.reply().json["status"] == "succeeded"
    assert "failed to start another process" in server.log()
    assert len(setups(counts)) == 2


def test_a_dead_process_of_a_range_is_replaced(scaled, counts):
    server = scaled("--workers", "1..2", *NEVER_DOWN)
    assert server.predict({"how": "exit"}).json["error"] == "Worker crashed"
    server.wait_health("READY")
    assert ready(server) == 1
    assert len(setups(counts)) == 2


@pytest.mark.parametrize(
    ("value", "advice"), [("0..4", "--idle-timeout"), ("4..2", "`2..4`"), ("some", "`1..4`")]
)
def test_an_invalid_number_says_what_to_write(value, advice):
    done = subprocess.run(
        [tidegate_bin(), "serve", "--workers", value], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 64
    assert advice in done.stderr
