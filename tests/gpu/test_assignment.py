"""Which GPUs the processes of a model see."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fake_gpus import GIB, MODEL
from server_process import Server
from waiting import wait_until


def environment(server: Server, path: str = "/predictions", **input: object) -> dict[str, Any]:
    """The variables of a process of the model."""
    reply = server.post(path, {"input": input})
    assert reply.status == 200, str(reply)
    return json.loads(reply.json["output"])


def seen(server: Server, path: str = "/predictions") -> str | None:
    return environment(server, path)["CUDA_VISIBLE_DEVICES"]


def children(server: Server) -> list[str | None]:
    """The GPUs of each process."""
    return [child.get("gpu") for child in server.get("/admin/children").json["children"]]


def write_model(folder: Path, yaml: str = "") -> Path:
    shutil.copytree(MODEL, folder)
    (folder / "cog.yaml").write_text(f'predict: "predict.py:Predictor"\n{yaml}')
    return folder


GPU_TRUE = "build: {gpu: true}\n"


def test_a_gpu_model_gets_one_card(gpus, serve_gpus):
    gpus.card(0)
    gpus.card(1)
    server = serve_gpus()
    found = environment(server)
    assert (found["CUDA_VISIBLE_DEVICES"], found["CUDA_DEVICE_ORDER"]) == ("0", "PCI_BUS_ID")
    assert children(server) == ["0"]
    [child] = server.get("/admin/gpus").json["gpus"][0]["children"]
    assert (child["model"], child["number"]) == ("local/gpu_model", 0)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--workers", "2"), ["0", "1"]),
        (("--workers", "auto"), ["0", "1", "2"]),
        (("--workers", "4", "--gpu-memory", "1GiB"), ["0", "1", "2", "0"]),
        (("--gpus", "2", "--workers", "auto"), ["0", "1"]),
        (("--gpus", "0,2", "--workers", "auto"), ["0", "2"]),
        (("--gpus", "device=1"), ["1"]),
        (("--gpus-per-worker", "2"), ["0,1"]),
        (("--gpus-per-worker", "all"), ["0,1,2"]),
        (("--gpus", "none", "--workers", "auto"), [None]),
    ],
)
def test_the_cards_of_each_process(gpus, serve_gpus, flags, expected):
    for number in range(3):
        gpus.card(number)
    server = serve_gpus(MODEL, *flags)
    assert children(server) == expected


def test_a_list_of_one_uuid_selects_a_card(gpus, serve_gpus):
    gpus.card(0)
    gpus.card(1)
    assert seen(serve_gpus(MODEL, "--gpus", gpus.uuid(1))) == "1"


def test_mig_devices_are_given_by_uuid(gpus, serve_gpus):
    gpus.card(0, mig=1)
    gpus.mig(0, 0)
    gpus.mig(0, 3)
    server = serve_gpus(MODEL, "--workers", "auto")
    assert sorted(children(server), key=str) == ["MIG-00", "MIG-03"]
    assert seen(server) in ("MIG-00", "MIG-03")


def test_without_gpus_hidden_from_the_model(gpus, serve_gpus):
    gpus.card(0)
    assert seen(serve_gpus(MODEL, "--gpus", "none")) == ""


@pytest.mark.parametrize(
    ("yaml", "flags", "expected"),
    [
        ("", (), None),
        ("build: {gpu: false}\n", (), None),
        ("", ("--gpus", "all"), "0"),
        ("build: {gpu: false}\n", ("--gpus", "all"), ""),
        (GPU_TRUE + "environment: [CUDA_VISIBLE_DEVICES=7]\n", (), "7"),
    ],
)
def test_what_cog_yaml_says(gpus, serve_gpus, tmp_path, yaml, flags, expected):
    gpus.card(0)
    server = serve_gpus(write_model(tmp_path / "model", yaml), *flags)
    assert seen(server) == expected


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2,1"}, ["1", "2"]),
        ({"CUDA_VISIBLE_DEVICES": "1"}, ["1"]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [None]),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, ["0", "1", "2"]),
        ({"NVIDIA_VISIBLE_DEVICES": "GPU-00000002-aaaa-bbbb-cccc-000000000000"}, ["2"]),
    ],
)
def test_the_visibility_of_the_server_is_the_limit(gpus, serve_gpus, env, expected):
    for number in range(3):
        gpus.card(number)
    server = serve_gpus(MODEL, "--workers", "auto", env=env)
    assert sorted(children(server), key=str) == expected


def test_the_variables_of_rocm_are_left_alone(gpus, serve_gpus):
    gpus.card(0)
    found = environment(serve_gpus(env={"HIP_VISIBLE_DEVICES": "3", "ROCR_VISIBLE_DEVICES": "4"}))
    assert (found["HIP_VISIBLE_DEVICES"], found["ROCR_VISIBLE_DEVICES"]) == ("3", "4")


def test_a_process_that_replaces_another_has_its_card(gpus, serve_gpus):
    gpus.card(0)
    gpus.card(1)
    server = serve_gpus(MODEL, "--workers", "2")
    before = environment(server)
    server.post("/predictions", {"input": {"die": True}})
    wait_until(
        lambda: sum(child["restarts"] for child in server.get("/admin/children").json["children"]) == 1,
        "a restart",
    )
    server.wait_health("READY")
    wait_until(
        lambda: all(child["state"] == "ready" for child in server.get("/admin/children").json["children"]),
        "both processes",
    )
    assert children(server) == ["0", "1"]
    pids = {}
    while len(pids) < 2:
        found = environment(server)
        pids[found["CUDA_VISIBLE_DEVICES"]] = found["pid"]
        server.post("/predictions", {"input": {"die": True}})
        server.wait_health("READY")
    assert set(pids) == {"0", "1"}, before


def test_two_models_are_spread_over_the_cards(gpus, serve_gpus, tmp_path):
    gpus.card(0)
    gpus.card(1)
    root = tmp_path / "models"
    write_model(root / "one", GPU_TRUE)
    write_model(root / "two", GPU_TRUE)
    server = serve_gpus(root)
    wait_until(lambda: None not in children(server), "both models")
    assert sorted(children(server)) == ["0", "1"]


def test_a_gpu_model_without_a_gpu_runs_on_the_cpu_with_a_warning(start_server):
    server = start_server(MODEL)
    assert seen(server) is None
    assert "asks for a GPU, and there is none for the model: it runs on the CPU" in server.log()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--gpus", "3"), "`--gpus 3` asks for 3 GPUs, and this server sees 2 GPUs: 0, 1"),
        (("--gpus", "0,5"), "`--gpus` names the GPU `5`"),
        (("--gpus-per-worker", "3"), "`--gpus-per-worker 3` is more than the 2 GPUs"),
        (("--gpus", "some"), "write `all`, `none`, a number of GPUs"),
        (("--workers", "none"), "or `auto` for one process per GPU"),
    ],
)
def test_what_cannot_be_given_is_refused(gpus, tidegate_gpus, flags, message):
    gpus.card(0)
    gpus.card(1)
    done = tidegate_gpus("serve", MODEL, "--port", "0", *flags)
    assert done.returncode != 0
    assert message in done.stderr


def test_an_explicit_number_fails_on_a_machine_without_gpus(tidegate_gpus):
    done = tidegate_gpus("serve", MODEL, "--port", "0", "--gpus", "1")
    assert (done.returncode, "this server sees no GPU" in done.stderr) == (64, True), done.stderr


def test_settings_come_from_the_environment_and_the_file(gpus, serve_gpus, tmp_path):
    for number in range(3):
        gpus.card(number)
    config = tmp_path / "tidegate.toml"
    config.write_text('gpus = [1, 2]\nworkers = "auto"\ngpu_memory = ["1GiB", "gpu_model=2GiB"]\n')
    assert children(serve_gpus(MODEL, "--config", str(config))) == ["1", "2"]
    assert children(serve_gpus(env={"TIDEGATE_GPUS": "0,2", "TIDEGATE_GPUS_PER_WORKER": "2"})) == ["0,2"]


def test_a_handler_gets_a_card_only_if_asked_for(gpus, serve_gpus, tmp_path):
    gpus.card(0)
    script = tmp_path / "script" / "handler.py"
    script.parent.mkdir()
    script.write_text(
        "import os, runpod\n"
        "runpod.serverless.start({'handler': lambda job: str(os.environ.get('CUDA_VISIBLE_DEVICES'))})\n"
    )
    for flags, expected in ((), "None"), (("--gpus", "1"), "0"):
        server = serve_gpus(script.parent, *flags)
        reply = server.post("/runsync", {"input": {}})
        assert reply.json["output"] == expected


def test_worker_and_director_have_the_options(gpus, tidegate_gpus, tmp_path):
    gpus.card(0)
    script = tmp_path / "handler.py"
    script.write_text(
        "import os, runpod\n"
        "runpod.serverless.start({'handler': lambda job: str(os.environ.get('CUDA_VISIBLE_DEVICES'))})\n"
    )
    done = tidegate_gpus("worker", script, "--gpus", "1", "--test-input", '{"input": {}}')
    assert '"0"' in done.stdout, done.stdout + done.stderr
    refused = tidegate_gpus(
        "director",
        MODEL,
        "--gpus",
        "2",
        "--redis",
        "redis://127.0.0.1:1",
        "--api",
        "http://127.0.0.1:1",
        env={"TIDEGATE_DIRECTOR_TOKEN": "t" * 32},
    )
    assert "`--gpus 2` asks for 2 GPUs, and this server sees only the GPU 0" in refused.stderr, refused.stderr


def test_a_model_process_reports_its_memory_on_the_card_it_got(gpus, serve_gpus):
    gpus.card(0)
    gpus.card(1)
    server = serve_gpus(MODEL, "--gpus", "device=1", env={"MODEL_HOLDS": str(5 * GIB)})

    def holders() -> list[list[int | None]]:
        listed = server.get("/admin/gpus").json["gpus"]
        return [[child["memory_bytes"] for child in gpu["children"]] for gpu in listed]

    wait_until(lambda: holders() == [[], [5 * GIB]], "the memory of the model")
