"""A folder with `handler.py`: served alone, and in a folder of models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import start_tidegate
from server_process import Server
from waiting import wait_until

HANDLER = """
import pathlib
import runpod


def handler(job):
    return pathlib.Path("greeting.txt").read_text() + " " + job["input"]["name"]


runpod.serverless.start({"handler": handler})
"""
PREDICTOR = """
def predict(name: str) -> str:
    return "bye " + name
"""


def write_handler(folder: Path, greeting: str = "hello") -> None:
    folder.mkdir(parents=True)
    (folder / "handler.py").write_text(HANDLER)
    # The handler runs in its own folder.
    (folder / "greeting.txt").write_text(greeting)


def write_predictor(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "predict.py").write_text(PREDICTOR)
    (folder / "cog.yaml").write_text("predict: predict.py:predict")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A folder with two handlers and a Cog model."""
    root = tmp_path_factory.mktemp("sources") / "models"
    write_handler(root / "greeter")
    write_handler(root / "ann" / "other", "good morning")
    write_predictor(root / "cog-model")
    server = start_tidegate(root, tmp_path_factory.mktemp("server"), flags=("--watch",))
    yield server
    server.stop()


def test_a_folder_with_a_handler_is_served(tmp_path: Path) -> None:
    write_handler(tmp_path / "greeter")
    server = start_tidegate(tmp_path / "greeter", tmp_path / "scratch")
    try:
        body = {"input": {"name": "Ada"}}
        assert server.post("/runsync", body).json["output"] == "hello Ada"
        assert server.post("/predictions", body).json["output"] == "hello Ada"
        models = [model["name"] for model in server.get("/v1/models").json["results"]]
        assert models == ["greeter"]
    finally:
        server.stop()


def test_handlers_in_a_folder_of_models_have_runpods_api(several: Server) -> None:
    assert sorted(several.get("/").json["models"]) == ["ann/other", "local/cog-model", "local/greeter"]
    body = {"input": {"name": "Ada"}}
    for model, output in (("local/greeter", "hello Ada"), ("ann/other", "good morning Ada")):
        at = f"/models/{model}"
        assert several.post(f"{at}/runsync", body).json["output"] == output
        job = several.post(f"{at}/run", body).json["id"]
        assert several.post(f"{at}/status/{job}").json["output"] == output
        assert several.get(f"{at}/health").json["jobs"]["completed"] == 2
        assert several.post(f"{at}/predictions", body).json["output"] == output
        assert several.get(f"{at}/").content_type.startswith("text/html")
    prediction = several.post("/v1/models/local/greeter/predictions", body, headers={"Prefer": "wait"}).json
    assert prediction["output"] == "hello Ada"


def test_a_cog_model_in_the_folder_has_no_runpod_api(several: Server) -> None:
    at, body = "/models/local/cog-model", {"input": {"name": "Ada"}}
    assert several.post(f"{at}/predictions", body).json["output"] == "bye Ada"
    assert several.post(f"{at}/runsync", body).status == 404
    assert several.get(f"{at}/").json["predictions_url"] == f"{at}/predictions"


def test_a_changed_file_of_the_folder_makes_a_new_version(several: Server) -> None:
    (several.directory / "ann" / "other" / "greeting.txt").write_text("good evening")
    before = several.get("/").json["models"]["ann/other"]["version"]
    wait_until(lambda: several.get("/").json["models"]["ann/other"]["version"] != before, "the new version")
    body = {"input": {"name": "Ada"}}
    assert several.post("/models/ann/other/runsync", body).json["output"] == "good evening Ada"
