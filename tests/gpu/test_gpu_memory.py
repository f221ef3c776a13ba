"""Models that share the memory of GPUs: measuring, waiting, unloading, refusing."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from fake_gpus import GIB, MODEL, FakeGpus
from server_process import Server
from waiting import wait_until

CUDA = (MODEL / "fake_cuda.py").read_text()
PREDICT = """
import os
import time

import fake_cuda
from cog import BasePredictor

class Predictor(BasePredictor):
    def setup(self) -> None:
        fake_cuda.hold({holds})

    def predict(self, gate: str = "", hold: int = -1) -> str:
        if hold >= 0:
            fake_cuda.hold(hold)
        while gate and not os.path.exists(gate):
            time.sleep(0.005)
        return os.environ["CUDA_VISIBLE_DEVICES"]
"""


TORCH = """
from types import SimpleNamespace

GIB = 1 << 30
held, peak = 9 * GIB, 9 * GIB

def grow(most, now):
    global held, peak
    held, peak = now, max(peak, most)

cuda = SimpleNamespace(
    is_initialized=lambda: True,
    device_count=lambda: 1,
    current_device=lambda: 0,
    synchronize=lambda device=0: None,
    memory_reserved=lambda device=0: held,
    max_memory_reserved=lambda device=0: peak,
)
"""
PREDICT_WITH_TORCH = """
import fake_cuda
import torch
from cog import BasePredictor

class Predictor(BasePredictor):
    def setup(self) -> None:
        fake_cuda.hold(10 * torch.GIB)

    def predict(self, most: int) -> int:
        torch.grow(most * torch.GIB, 9 * torch.GIB)
        return most
"""


def write_model(folder: Path, gib: int, note: str = "") -> Path:
    """A model whose setup holds this much memory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fake_cuda.py").write_text(CUDA)
    (folder / "predict.py").write_text(PREDICT.format(holds=gib * GIB) + note)
    (folder / "cog.yaml").write_text('build: {gpu: true}\npredict: "predict.py:Predictor"\n')
    return folder


@pytest.fixture
def models(tmp_path):
    """Two models that do not fit into one card together, and a small one."""
    root = tmp_path / "models"
    write_model(root / "big", 60)
    write_model(root / "wide", 50)
    write_model(root / "small", 10)
    return root


def predict(server: Server, model: str, **input: object) -> Any:
    return server.post(f"/models/local/{model}/predictions", {"input": input})


def output(server: Server, model: str, **input: object) -> str:
    reply = predict(server, model, **input)
    assert (reply.status, reply.json.get("status")) == (200, "succeeded"), str(reply)
    return reply.json["output"]


def loaded(server: Server) -> set[str]:
    return {child["model"].removeprefix("local/") for child in server.get("/admin/children").json["children"]}


def remembered(folder: Path) -> dict[str, int]:
    file = folder / "gpu-memory.json"
    entries = json.loads(file.read_text()) if file.exists() else []
    return {entry["model"].removeprefix("local/"): entry["bytes"] for entry in entries}


def test_models_that_do_not_fit_together_take_turns(gpus, serve_gpus, models):
    gpus.card(0)
    server = serve_gpus(models, "--lazy", until=())
    server.wait_health("READY")
    for model in ("big", "wide", "big", "wide"):
        assert output(server, model) == "0"
        assert loaded(server) == {model}


def test_a_short_peak_of_the_allocator_counts(gpus, serve_gpus, tmp_path):
    gpus.card(0)
    data = tmp_path / "data"
    model = write_model(tmp_path / "model", 0)
    (model / "predict.py").write_text(PREDICT_WITH_TORCH)
    (model / "torch.py").write_text(TORCH)
    server = serve_gpus(model, env={"TIDEGATE_DATA_DIR": str(data)})
    # 1 GiB beside the allocator.
    wait_until(lambda: remembered(data) == {"model": 10 * GIB}, "the memory of the setup")
    assert server.predict({"most": 40}).json["output"] == 40

    def is_known() -> bool:
        server.predict({"most": 1})  # the allocator is asked once a second, at the end of a job
        return remembered(data) == {"model": 41 * GIB}

    wait_until(is_known, "the peak")


def test_models_that_fit_stay_loaded_together(gpus, serve_gpus, models):
    gpus.card(0)
    server = serve_gpus(models, "--lazy")
    # Each is loaded alone once, to measure it.
    for model in ("big", "small", "big", "small"):
        output(server, model)
    assert loaded(server) == {"big", "small"}


def test_the_least_recently_used_model_is_unloaded(gpus, serve_gpus, tmp_path):
    root = tmp_path / "models"
    for name, gib in (("one", 30), ("two", 30), ("three", 30)):
        write_model(root / name, gib)
    gpus.card(0)
    server = serve_gpus(root, "--lazy", "--gpu-memory", "30GiB")
    for model in ("one", "two", "one", "three"):
        output(server, model)
    assert loaded(server) == {"one", "three"}


def test_a_busy_model_finishes_its_job_before_it_gives_way(gpus, serve_gpus, models, gate):
    gpus.card(0)
    server = serve_gpus(models, "--lazy", "--gpu-memory", "50GiB")
    answers = {}

    def ask(model: str, **input: object) -> threading.Thread:
        thread = threading.Thread(
            target=lambda: answers.update({model: predict(server.sibling(), model, **input)})
        )
        thread.start()
        return thread

    busy = ask("wide", gate=str(gate))
    wait_until(
        lambda: any(child["jobs"] for child in server.get("/admin/children").json["children"]), "the job"
    )
    waits = ask("big")
    wait_until(lambda: server.get("/models/local/big/health-check").json["status"] == "STARTING", "the wait")
    gate.open()
    busy.join(30)
    waits.join(30)
    assert {model: reply.json["status"] for model, reply in answers.items()} == {
        "wide": "succeeded",
        "big": "succeeded",
    }


def test_models_take_turns_under_load_without_an_error(gpus, serve_gpus, models):
    gpus.card(0)
    server = serve_gpus(
        models, "--lazy", "--queue", "100", env={"TIDEGATE_GPU_MEMORY": "big=60GiB,wide=50GiB,small=10GiB"}
    )
    failures: list[str] = []

    def ask(model: str) -> None:
        own = server.sibling()
        for _ in range(4):
            reply = predict(own, model)
            if reply.status != 200 or reply.json["status"] != "succeeded":
                failures.append(str(reply))

    threads = [
        threading.Thread(target=ask, args=(model,)) for model in ("big", "wide", "small") for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []


def test_the_second_card_is_used_before_a_model_is_unloaded(gpus, serve_gpus, models):
    gpus.card(0)
    gpus.card(1)
    server = serve_gpus(models, "--lazy")
    cards = {output(server, model) for model in ("big", "wide")}
    assert (cards, loaded(server)) == ({"0", "1"}, {"big", "wide"})


def test_a_model_that_can_never_fit_is_refused_with_the_figures(gpus, serve_gpus, tmp_path):
    gpus.card(0)
    server = serve_gpus(write_model(tmp_path / "huge", 100), "--gpu-memory", "100GiB")
    health = server.health()
    assert health["status"] == "SETUP_FAILED"
    text = "each process of local/huge needs 100.0 GiB, and the GPU has 80.0 GiB"
    assert text in health["setup"]["logs"] or text in server.log()


def test_models_that_stay_loaded_refuse_another(gpus, serve_gpus, models):
    gpus.card(0)
    server = serve_gpus(models, env={"TIDEGATE_GPU_MEMORY": "big=60GiB,wide=50GiB,small=10GiB"}, until=())
    wait_until(lambda: "start the server with --lazy" in server.log(), "the refusal", 30)


def test_a_model_waits_until_another_program_frees_its_memory(gpus, serve_gpus, tmp_path):
    gpus.card(0, used=70 * GIB)
    server = serve_gpus(write_model(tmp_path / "model", 20), "--gpu-memory", "20GiB", until=("STARTING",))
    assert server.model_process_count() == 0
    gpus.card(0, used=0)
    server.wait_health("READY")


def test_memory_that_is_returned_late_is_waited_for(gpus, serve_gpus, models):
    gpus.card(0)
    server = serve_gpus(models, "--lazy", "--gpu-memory", "50GiB")
    output(server, "big")
    [child] = server.get("/admin/children").json["children"]
    file = gpus.hold(0, child["pid"], 60 * GIB, linger=True)
    (gpus.folder / "processes" / f"{gpus.uuid(0)}.{child['pid']}").unlink()
    threads = [threading.Thread(target=predict, args=(server.sibling(), "wide"))]
    threads[0].start()
    wait_until(lambda: not Path(f"/proc/{child['pid']}").exists(), "the end of the first model")
    assert "wide" not in loaded(server) or server.model_process_count() == 0
    file.unlink()
    threads[0].join(30)
    assert loaded(server) == {"wide"}


def test_a_replaced_process_waits_for_the_memory_of_the_old_one(gpus, serve_gpus, tmp_path):
    gpus.card(0)
    server = serve_gpus(write_model(tmp_path / "model", 60))
    [before] = server.get("/admin/children").json["children"]
    file = gpus.hold(0, before["pid"], 60 * GIB, linger=True)
    (gpus.folder / "processes" / f"{gpus.uuid(0)}.{before['pid']}").unlink()
    os.kill(before["pid"], signal.SIGKILL)

    def foreign() -> object:
        return server.get("/admin/gpus").json["gpus"][0]["other_memory_bytes"]

    # The server has read the memory after the death, and has not started a process that would fail.
    wait_until(lambda: foreign() == 60 * GIB, "the death")
    assert (server.health()["status"], server.model_process_count()) == ("STARTING", 0)
    file.unlink()
    server.wait_health("READY")
    [after] = server.get("/admin/children").json["children"]
    assert (after["restarts"], after["gpu"]) == (1, "0")
    assert "out of memory" not in server.log()


def test_on_cards_of_two_kinds_a_model_is_measured_on_one(gpus, serve_gpus, tmp_path):
    root = tmp_path / "models"
    names = ("one", "two", "three", "four")
    for name in names:
        write_model(root / name, 10)
    gpus.card(0, name="NVIDIA A")
    gpus.card(1, name="NVIDIA B")
    data = tmp_path / "data"
    server = serve_gpus(root, "--lazy", env={"TIDEGATE_DATA_DIR": str(data)})
    # Each is loaded alone once, to measure it; then all fit.
    for count, model in enumerate(names + names, 1):
        output(server, model)
        wait_until(lambda count=count: len(remembered(data)) == min(count, 4), "the measurement")
    assert loaded(server) == set(names)


def test_several_gpus_for_a_process_are_different_ones(gpus, serve_gpus, tmp_path):
    root = tmp_path / "models"
    write_model(root / "spread", 5)
    write_model(root / "small", 2)
    gpus.card(0)
    gpus.card(1, total=10 * GIB)
    needs = ("--gpu-memory", "spread=20GiB", "--gpu-memory", "small=2GiB")
    server = serve_gpus(root, "--lazy", "--gpus-per-worker", "2", *needs)
    output(server, "small")
    assert predict(server, "spread").json["status"] == "failed"
    health = server.get("/models/local/spread/health-check").json
    assert health["status"] == "SETUP_FAILED"
    text = "needs 20.0 GiB on each of 2 GPUs, and only 1 of 2 GPUs can hold that"
    assert text in health["setup"]["logs"]


def test_measured_requirements_survive_a_restart(gpus, serve_gpus, models, tmp_path):
    gpus.card(0)
    data = tmp_path / "data"
    env = {"TIDEGATE_DATA_DIR": str(data)}
    server = serve_gpus(models, "--lazy", env=env)
    output(server, "small")
    output(server, "big")
    wait_until(lambda: remembered(data) == {"small": 10 * GIB, "big": 60 * GIB}, "the measurements")
    # A job that needs more raises it.
    output(server, "big", hold=65 * GIB)
    wait_until(lambda: remembered(data)["big"] == 65 * GIB, "the measurement of the job")
    server.stop()
    server = serve_gpus(models, "--lazy", env=env)
    # Nothing has to be loaded alone any more.
    output(server, "big")
    output(server, "small")
    assert loaded(server) == {"big", "small"}


def test_without_process_ids_a_model_that_loads_alone_is_measured(gpus, serve_gpus, models, tmp_path):
    gpus.card(0, used=3 * GIB)
    data = tmp_path / "data"
    env = {"TIDEGATE_DATA_DIR": str(data), "TIDEGATE_GPU_PIDS": "ignore"}
    server = serve_gpus(models, "--lazy", env=env)
    output(server, "small")
    wait_until(lambda: remembered(data) == {"small": 10 * GIB}, "the measurement")


def test_without_process_ids_the_first_of_several_processes_is_measured(gpus, serve_gpus, tmp_path):
    gpus.card(0)
    data = tmp_path / "data"
    env = {"TIDEGATE_DATA_DIR": str(data), "TIDEGATE_GPU_PIDS": "ignore"}
    server = serve_gpus(write_model(tmp_path / "model", 30), "--workers", "2", env=env)
    assert [child["gpu"] for child in server.get("/admin/children").json["children"]] == ["0", "0"]
    assert remembered(data) == {"model": 30 * GIB}


def test_too_many_processes_are_refused_with_the_figures_at_the_first_start(gpus, serve_gpus, tmp_path):
    gpus.card(0)
    server = serve_gpus(write_model(tmp_path / "model", 30), "--workers", "3")
    health = server.health()
    assert health["status"] == "SETUP_FAILED"
    text = "needs 30.0 GiB, and the memory of the GPUs is enough for 2 of 3 processes"
    assert text in health["setup"]["logs"]
    assert "out of memory" not in server.log()


def test_unknown_models_with_several_processes_take_turns(gpus, serve_gpus, tmp_path):
    root = tmp_path / "models"
    for name in ("one", "two"):
        write_model(root / name, 25)
    gpus.card(0)
    server = serve_gpus(root, "--lazy", "--workers", "2", "--queue", "9", until=())
    server.wait_health("READY")
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda model=model: answers.append(output(server.sibling(), model)))
        for model in ("one", "two", "one", "two")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == ["0"] * 4
    assert "out of memory" not in server.log()


def test_on_cards_without_memory_figures_max_loaded_is_the_limit(gpus, serve_gpus, models):
    gpus.card(0, total=None, no_processes=1)
    server = serve_gpus(models, "--max-loaded", "1")
    for model in ("big", "wide"):
        output(server, model)
        assert loaded(server) == {model}


def test_a_new_version_that_does_not_fit_beside_the_old_one_loads_after_it(gpus, serve_gpus, tmp_path):
    gpus.card(0)
    server = serve_gpus(write_model(tmp_path / "model", 60), "--watch")
    [before] = server.get("/admin/models").json["models"]
    write_model(server.directory, 60, note="\n# the next version\n")

    def is_replaced() -> bool:
        listed = server.get("/admin/models").json["models"]
        return any(model["version"] != before["version"] and model["health"] == "READY" for model in listed)

    wait_until(is_replaced, "the new version", 40)
    assert "loading the new one when the old one has ended" in server.log()
    assert server.predict({}).json["status"] == "succeeded"


def test_a_model_that_waits_for_memory_does_not_keep_others_from_another_card(gpus, serve_gpus, tmp_path):
    root = tmp_path / "models"
    write_model(root / "large", 20)
    write_model(root / "fits", 20)
    gpus.card(0)
    gpus.card(1, used=70 * GIB)
    server = serve_gpus(root, "--lazy", "--gpu-memory", "large=70GiB", "--gpu-memory", "fits=20GiB")
    gpus.card(0, used=30 * GIB)
    wait_until(
        lambda: server.get("/admin/gpus").json["gpus"][0]["memory_used_bytes"] == 30 * GIB, "the change"
    )
    waits = threading.Thread(target=predict, args=(server.sibling(), "large"))
    waits.start()
    wait_until(
        lambda: server.get("/models/local/large/health-check").json["status"] == "STARTING", "the wait"
    )
    assert output(server, "fits") == "0"
    gpus.card(1, used=0)
    waits.join(30)
    assert loaded(server) == {"large", "fits"}


def test_a_failed_setup_gives_its_memory_back(gpus: FakeGpus, serve_gpus, tmp_path):
    root = tmp_path / "models"
    write_model(root / "works", 50)
    broken = write_model(root / "broken", 1)
    (broken / "predict.py").write_text("raise RuntimeError('broken')\n")
    gpus.card(0)
    server = serve_gpus(root, "--lazy", "--gpu-memory", "50GiB")
    predict(server, "broken")
    assert output(server, "works") == "0"
