"""The examples that the server shows, on the terminal and in the web UI, work when they are pasted."""

import json
import re
import shlex
import shutil
import subprocess

import pytest
from certificates import make_certificate
from environment import ROOT, free_port, tidegate_bin, tidegate_env
from launch import launch
from waiting import wait_until

MODEL = """
import struct, zlib
from cog import BasePredictor, Input, Path

class Predictor(BasePredictor):
    def predict(
        self,
        image: Path,
        recording: Path = Input(accept="audio/*"),
        notes: list[Path] = Input(description="Texts"),
        prompt: str = Input(min_length=8),
        size: int = Input(le=0),
        code: str = Input(regex="^[a-z]$"),
        share: float = Input(ge=2.5),
        style: str = Input(choices=["it's", "other"]),
        optional: str = "x",
    ) -> str:
        data = image.read_bytes()
        start = data.index(b"IDAT")
        length = struct.unpack(">I", data[start - 4 : start])[0]
        zlib.decompress(data[start + 4 : start + 4 + length])
        assert data.startswith(b"\\x89PNG") and recording.read_bytes().startswith(b"RIFF")
        notes[0].read_text()
        return f"{prompt} {size} {code} {share} {style} {optional}"
"""


def pasted(command):
    """Run a command in a shell, as if it had been pasted, and return its JSON."""
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def printed(server):
    wait_until(lambda: "curl -s" in server.log(), "the command on the terminal")
    return re.search(r"curl -s .*", server.log())[0]


def shown(server):
    """The input that the form of the model begins with."""
    [model] = server.get("/ui/api/models").json["models"]
    return server.get(f"/ui/api/models/{model['name']}").json["example"]


def input_of(command):
    return json.loads(shlex.split(command)[-1])["input"]


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (folder / "predict.py").write_text(MODEL)
    return folder


def test_the_examples_of_a_model(start_server, model):
    server = start_server(model)
    assert shown(server) == input_of(printed(server))
    answer = pasted(printed(server))
    assert (answer["status"], answer["output"]) == ("succeeded", "worldwor 0 w 2.5 it's x"), answer


@pytest.fixture
def handler(tmp_path):
    folder, port = tmp_path / "handler", free_port()
    shutil.copytree(ROOT / "examples" / "runpod-plain", folder)
    command = [str(tidegate_bin()), "serve", str(folder / "handler.py"), "--port", str(port)]
    server = launch("tidegate", folder, port, command, tidegate_env(), ("READY",))
    yield server
    server.stop()


def test_the_examples_of_a_handler_are_for_runsync(handler):
    server = handler
    assert "/runsync" in printed(server) and shown(server) == input_of(printed(server))
    assert pasted(printed(server))["status"] == "COMPLETED"


def test_the_example_of_an_https_server(start_server, tmp_path):
    certificate, key = make_certificate(tmp_path, "localhost")
    server = start_server(
        "echo", "--tls-cert", str(certificate), "--tls-key", str(key), certificate=certificate
    )
    assert pasted(printed(server))["output"] == "hello"
