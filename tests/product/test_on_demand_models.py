"""On-demand models under load: order, evictions, waiting jobs."""

import os
import shutil
import signal

import pytest
from waiting import wait_until

SAY = """
import time
from cog import BasePredictor

class Predictor(BasePredictor):
    def setup(self) -> None:
        time.sleep({setup})

    def predict(self, text: str = "x", gate: str = "") -> str:
        import os
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        return {word!r} + text
"""


def write_model(folder, word, setup=0.0):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predict.py").write_text(SAY.format(word=word, setup=setup))
    (folder / "cog.yaml").write_text('predict: "predict.py:Predictor"\n')


@pytest.fixture
def models(tmp_path):
    root = tmp_path / "models"
    write_model(root / "one", "one ")
    write_model(root / "two", "two ")
    return root


@pytest.fixture
def env(tmp_path):
    return {"TIDEGATE_DATA_DIR": str(tmp_path / "data")}


def create(server, model, text="x", headers=None, **input):
    body = {"input": {"text": text, **input}}
    reply = server.post(f"/v1/models/local/{model}/predictions", body, headers=headers or {})
    assert reply.status == 201, str(reply)
    return reply.json["id"]


def show(server, id):
    reply = server.get(f"/v1/predictions/{id}")
    assert reply.status == 200, str(reply)
    return reply.json


def wait_status(server, id, *statuses):
    return wait_until(
        lambda: (seen := show(server, id))["status"] in statuses and seen, f"{id} to be {statuses}", 40
    )


def kill(server):
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()


def test_jobs_for_an_unloaded_model_keep_their_order_after_a_kill(start_server, models, gate, env):
    server = start_server(models, "--lazy", env=env)
    held = create(server, "one", gate=str(gate))
    wait_status(server, held, "processing")
    ids = [create(server, "one", str(n)) for n in range(40)]
    kill(server)
    gate.open()
    server = start_server(models, "--lazy", env=env)
    begun = [wait_status(server, id, "succeeded")["started_at"] for id in [held, *ids]]
    assert begun == sorted(begun)


def test_a_job_canceled_while_its_model_waits_leaks_no_process(start_server, models, gate):
    server = start_server(models, "--max-loaded", "1")
    held = create(server, "one", gate=str(gate))
    wait_status(server, held, "processing")
    waits = create(server, "two")
    # Until the busy model has been asked to give way.
    wait_until(
        lambda: server.get("/models/local/one/health-check").json["status"] == "READY", "the request", 30
    )
    assert server.post(f"/v1/predictions/{waits}/cancel").json["status"] == "canceled"
    after = create(server, "two", "later")
    assert server.model_process_count() == 1
    gate.open()
    before = wait_status(server, held, "succeeded")
    later = wait_status(server, after, "succeeded")
    assert (before["output"], later["output"]) == ("one x", "two later")
    assert before["completed_at"] <= later["started_at"]
    wait_until(lambda: server.model_process_count() == 1, "the model that gave way to be gone")


def test_a_replaced_version_frees_its_place_for_the_next(start_server, models):
    server = start_server(models, "--max-loaded", "1", "--watch")
    assert wait_status(server, create(server, "one"), "succeeded")["output"] == "one x"
    before = server.get("/v1/models/local/one").json["latest_version"]["id"]
    write_model(server.directory / "one", "uno ")
    wait_until(
        lambda: server.get("/v1/models/local/one").json["latest_version"]["id"] != before, "the new version"
    )
    assert wait_status(server, create(server, "one"), "succeeded")["output"] == "uno x"
    assert wait_status(server, create(server, "two"), "succeeded")["output"] == "two x"


def test_slow_loading_models_do_not_evict_each_other(start_server, tmp_path):
    root = tmp_path / "models"
    write_model(root / "one", "one ", setup=12)
    write_model(root / "two", "two ", setup=12)
    server = start_server(root, "--max-loaded", "1")
    ids = [create(server, "one"), create(server, "two")]
    assert [wait_status(server, id, "succeeded")["output"] for id in ids] == ["one x", "two x"]


@pytest.fixture
def broken(start_server, models, env):
    """A server with a model that does not load, a job that waits for it, and what the model was before."""
    working = (models / "one" / "predict.py").read_text()
    fails = working.replace("time.sleep(0.0)", "time.sleep(1.5); raise ValueError('not today')")
    (models / "one" / "predict.py").write_text(fails)
    server = start_server(models, "--watch", env=env, until=("STARTING",))
    waits = create(server, "one")
    wait_until(lambda: server.health()["models"]["local/one"] == "SETUP_FAILED", "the failure")
    assert show(server, waits)["status"] == "starting"
    return server, waits, working


def test_a_job_for_a_broken_version_runs_on_the_next_version(broken):
    server, waits, working = broken
    (server.directory / "one" / "predict.py").write_text(working)
    assert wait_status(server, waits, "succeeded")["output"] == "one x"


def test_a_job_for_a_removed_model_that_never_loaded_fails(broken):
    server, waits, _ = broken
    shutil.rmtree(server.directory / "one")
    assert "could not be started" in wait_status(server, waits, "failed")["error"]
