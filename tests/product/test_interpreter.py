"""The interpreter of the model, and what its subprocesses call `python`."""

import subprocess

import pytest
from environment import shim_python

CODE = """
import subprocess
import sys

class Predictor:
    def predict(self, name: str) -> str:
        command = [name, "-c", "import sys; print(sys.prefix, sys.version_info[:3])"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        return f"{found == f'{sys.prefix} {sys.version_info[:3]}'} {found} {sys.executable}"
"""


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "calls_python"
    folder.mkdir()
    (folder / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (folder / "predict.py").write_text(CODE)
    return folder


def base_interpreter() -> str:
    """The interpreter from which the environment of the tests was made; its folder is not on `PATH`."""
    code = "import sys; print(sys._base_executable)"
    return subprocess.check_output([shim_python(), "-c", code], text=True).strip()


@pytest.mark.parametrize("installation", ["virtual environment", "plain"])
def test_python_in_a_subprocess_is_the_models_interpreter(start_server, model, installation):
    python = str(shim_python()) if installation == "virtual environment" else base_interpreter()
    # A `PATH` with other interpreters, as most machines have.
    server = start_server(model, "--python", python, env={"PATH": "/usr/local/bin:/usr/bin:/bin"})
    for name in ("python", "python3"):
        output = server.predict({"name": name}).json["output"]
        assert output.startswith("True "), output
