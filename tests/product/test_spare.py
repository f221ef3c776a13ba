"""`--spare`: a process that waits to take the place of one that dies."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from environment import tidegate_bin
from processes import is_alive
from waiting import wait_until

MODEL = "counts_setups"


@pytest.fixture
def counts(tmp_path):
    """The folder in which the model counts."""
    folder = tmp_path / "counts"
    folder.mkdir()
    return folder


@pytest.fixture
def serve_with(start_server, counts):
    """Start a server whose model counts its imports and setups."""
    return lambda *flags, **options: start_server(MODEL, *flags, env={"COUNTS": str(counts)}, **options)


def count(counts, what: str) -> int:
    file = counts / what
    return len(file.read_text().split()) if file.exists() else 0


def processes(server):
    return server.get("/admin/children").json["children"]


def spare(server):
    """The spare, if it was ever started."""
    return next((process for process in processes(server) if "spare" in process), None)


def children(server):
    return [process for process in processes(server) if "spare" not in process]


def pids(server):
    return [child.get("pid") for child in children(server)]


def ready_spare(server) -> int:
    """Wait for the spare and return its process id."""

    def pid():
        process = spare(server)
        return process and process["state"] == "ready" and process["pid"]

    return wait_until(pid, "the spare")


def test_a_loaded_spare_takes_over_without_a_setup(serve_with, counts):
    server = serve_with("--spare", "loaded", "--queue", "9")
    first, next_one = server.predict().json["output"], ready_spare(server)
    # The next setup never ends: every answer from now on is the spare's.
    (counts / "setup-gate").touch()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: pids(server) == [next_one], "the spare to take over")
    assert server.predict().json["output"] == next_one
    [child] = children(server)
    assert (child["pid"], child["restarts"], child["slots"]) == (next_one, 1, 1)
    assert "SIGKILL" in child["last_end"] or "signal: 9" in child["last_end"]
    wait_until(lambda: count(counts, "setups") == 3, "the setup of the next spare")
    assert count(counts, "set_up") == 2
    assert server.health()["status"] == "READY"


def test_jobs_go_on_under_load(serve_with, counts, gate):
    server = serve_with("--spare", "loaded", "--queue", "50")
    victim, next_one = server.predict().json["output"], ready_spare(server)
    (counts / "setup-gate").touch()
    server.start({"gate": str(gate)}, id="held")
    ids = [f"job{number}" for number in range(20)]
    for id in ids:
        server.start({}, id=id)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: server.open_jobs() == 0, "the jobs to end")
    # Only the job that was running fails; the others do not wait for a setup.
    assert server.get("/predictions/held").json["error"].startswith("Worker crashed")
    assert {server.get(f"/predictions/{id}").json["output"] for id in ids} == {next_one}


def test_an_imported_spare_runs_its_setup_when_it_takes_over(serve_with, counts):
    server = serve_with("--spare", "imported")
    first, next_one = server.predict().json["output"], ready_spare(server)
    assert (count(counts, "imports"), count(counts, "setups")) == (2, 1)
    assert spare(server)["spare"] == "imported"
    os.kill(first, signal.SIGKILL)
    wait_until(
        lambda: [child.get("pid") for child in children(server)] == [next_one], "the spare to take over"
    )
    server.wait_health("READY")
    assert server.predict().json["output"] == next_one
    assert count(counts, "setups") == 2
    # A new spare is imported, and not set up.
    assert ready_spare(server) != next_one
    assert (count(counts, "imports"), count(counts, "setups")) == (3, 2)


def test_a_spare_is_neither_a_worker_nor_capacity(serve_with, gate):
    server = serve_with("--spare", "loaded")
    ready_spare(server)
    [model] = server.get("/admin/models").json["models"]
    assert (model["slots"], model["children_wanted"]) == (1, 1)
    metrics = server.get("/metrics").body.decode()
    assert 'tidegate_children{model="local/counts_setups",state="ready"} 1' in metrics
    assert 'tidegate_spares{model="local/counts_setups",state="ready"} 1' in metrics
    with server.in_background({"gate": str(gate)}):
        server.wait_health("BUSY")
        assert server.post("/predictions", {"input": {}}).status == 409
        gate.open()


def test_a_spare_that_fails_is_a_warning(serve_with, counts):
    server = serve_with("--spare", "loaded", until=())
    server.wait_health("READY")
    (counts / "setup-fails").touch()
    if (spare(server) or {}).get("state") == "ready":
        # It was faster than this test: let it take over, and fail the next one.
        os.kill(children(server)[0]["pid"], signal.SIGKILL)
    wait_until(lambda: (spare(server) or {}).get("state") == "setup_failed", "the failed spare")
    assert "no memory for another copy" in spare(server)["last_end"]
    assert server.health()["status"] == "READY"
    pid = server.predict().json["output"]
    assert "spare process failed" in server.log()
    # Without a spare, a dead child is replaced as always.
    (counts / "setup-fails").unlink()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: children(server)[0].get("pid") not in (None, pid), "another process")
    server.wait_health("READY")
    assert server.predict().json["output"] != pid


def test_a_dead_spare_is_not_an_outage(serve_with):
    server = serve_with("--spare", "loaded")
    pid, unneeded = server.predict().json["output"], ready_spare(server)
    os.kill(unneeded, signal.SIGKILL)
    wait_until(lambda: spare(server)["state"] == "setup_failed", "the death to be noticed")
    assert "died" in spare(server)["last_end"]
    assert server.predict().json["output"] == pid


@pytest.mark.parametrize("spare_kind", ["imported", "loaded"])
def test_a_stopped_server_leaves_no_process(serve_with, spare_kind):
    server = serve_with("--spare", spare_kind)
    both = [server.predict().json["output"], ready_spare(server)]
    server.signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    wait_until(lambda: not any(is_alive(pid) for pid in both), "all processes to end")


def test_an_unloaded_model_has_no_spare(serve_with):
    server = serve_with("--spare", "loaded", "--lazy", "--idle-timeout", "300ms")
    first = server.predict().json["output"]
    wait_until(lambda: server.model_process_count() == 0, "the model to be unloaded")
    assert processes(server) == []
    assert not is_alive(first)
    # The next job loads the model again, with a new spare.
    assert server.predict().json["output"] != first


def test_a_new_version_ends_the_old_spare(serve_with, counts):
    server = serve_with("--spare", "loaded", "--watch")
    old = [server.predict().json["output"], ready_spare(server)]
    with (server.directory / "predict.py").open("a") as code:
        code.write("\n# changed\n")
    wait_until(lambda: not any(is_alive(pid) for pid in old), "the old processes to end")
    assert server.predict().json["output"] not in old
    assert ready_spare(server) not in old


def test_scaling_up_takes_the_spare(serve_with, counts, gate):
    flags = ("--scale-up-after", "50ms", "--workers", "1..2", "--queue", "9")
    server = serve_with("--spare", "loaded", *flags)
    next_one = ready_spare(server)
    (counts / "setup-gate").touch()  # no other process becomes ready
    with (
        server.in_background({"gate": str(gate)}) as first,
        server.in_background({"gate": str(gate)}) as second,
    ):
        wait_until(
            lambda: next_one in [child.get("pid") for child in children(server)], "the spare to take a job"
        )
        wait_until(lambda: sum(child["jobs"] for child in children(server)) == 2, "both jobs to run")
        gate.open()
        assert next_one in (first.reply().json["output"], second.reply().json["output"])
    assert count(counts, "set_up") == 2


def test_a_handler_script_has_a_spare(start_server, tmp_path):
    folder, counts = tmp_path / "handler_model", tmp_path / "counted"
    folder.mkdir()
    (folder / "handler.py").write_text(
        "import os\n"
        "import counted_module\n"
        "import runpod\n"
        f"open({str(counts)!r}, 'a').write('run ')\n"
        "runpod.serverless.start({'handler': lambda job: os.getpid()})\n"
    )
    (folder / "counted_module.py").write_text(f"open({str(counts)!r}, 'a').write('import ')\n")
    server = start_server(folder, "--spare", "imported")
    next_one = ready_spare(server)
    assert counts.read_text().split() == ["import", "run", "import"]
    [child] = children(server)
    os.kill(child["pid"], signal.SIGKILL)
    wait_until(
        lambda: [child.get("pid") for child in children(server)] == [next_one], "the spare to take over"
    )
    server.wait_health("READY")
    assert server.post("/runsync", {"input": {}}).json["output"] == next_one


def test_without_respawn_there_is_no_spare():
    done = subprocess.run(
        [tidegate_bin(), "serve", ".", "--spare", "loaded", "--no-respawn", "--port", "0"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 64
    assert "--no-respawn" in done.stderr
