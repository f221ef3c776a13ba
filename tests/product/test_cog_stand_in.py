"""The stand-in for `cog` has the names of the real package and behaves the same."""

import json
import os
import subprocess

import pytest
from environment import ROOT, cog_python, shim_python

MODULES = [
    "cog",
    "cog.coder",
    "cog.errors",
    "cog.input",
    "cog.mode",
    "cog.model",
    "cog.suppress_output",
    "cog.types",
]
STAND_IN = os.pathsep.join([str(ROOT / "python"), str(ROOT / "python" / "tidegate" / "shims")])

NAMES = """
import importlib, inspect, json, sys, typing
module = importlib.import_module(sys.argv[1])
offered = getattr(module, "__all__", None) or [
    name for name, value in vars(module).items()
    if not name.startswith("_") and not inspect.ismodule(value) and not isinstance(value, typing.TypeVar)
    and getattr(value, "__module__", module.__name__) == module.__name__
]
print(json.dumps(sorted(offered)))
"""

FILENAMES = """
import json, sys
from cog.types import get_filename
print(json.dumps([get_filename(url) for url in json.loads(sys.argv[1])]))
"""

CODERS = """
import json
from cog.coder import Coder
from cog.errors import CogError, ConfigDoesNotExist, PredictorNotSet
from cog.mode import Mode

class Point: pass
class PointCoder(Coder):
    @staticmethod
    def factory(tpe): return PointCoder() if tpe is Point else None
    def encode(self, x): return {"point": 1}
    def decode(self, x): return Point()

before = Coder.lookup(Point)
Coder.register(PointCoder)
Coder.register(PointCoder)
found = Coder.lookup(Point)
print(json.dumps([
    before is None, type(found).__name__, found.encode(Point()), type(found.decode({})).__name__,
    Coder.lookup(int), Coder().encode(1), Coder().decode({}), Coder.factory(int),
    [[str(mode), mode.name, mode.value] for mode in Mode], Mode("train") is Mode.TRAIN,
    [[base.__name__ for base in error.__mro__] for error in (CogError, ConfigDoesNotExist, PredictorNotSet)],
]))
"""

SILENCE = """
import os, sys
from cog.suppress_output import suppress_output
print("before")
try:
    with suppress_output():
        print("hidden")
        print("hidden", file=sys.stderr)
        sys.stdout.flush()
        os.write(1, b"hidden")
        os.system("echo hidden; echo hidden >&2")
        raise KeyError
except KeyError:
    print("after", flush=True)
os.write(2, b"and after")
"""


def both(script: str, *args: str) -> list[subprocess.CompletedProcess]:
    """The script with the real package, and with the stand-in."""

    def run(python, path: str) -> subprocess.CompletedProcess:
        env = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            [python, "-c", script, *args], env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done

    return [run(cog_python(), ""), run(shim_python(), STAND_IN)]


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_the_real_module_is_there(module):
    real, ours = (json.loads(done.stdout) for done in both(NAMES, module))
    assert real, module
    assert sorted(set(real) - set(ours)) == []


def test_coders_errors_and_modes_behave_the_same():
    real, ours = (json.loads(done.stdout) for done in both(CODERS))
    assert real == ours


def test_files_get_the_same_names():
    long = "x" * 300
    urls = [
        "https://example.com/a/b%20c+d.png?q=1#f",
        "https://example.com/a%2Fb%00.txt",
        "https://example.com/",
        "https://example.com",
        f"https://example.com/{long}.tar.gz",
        f"https://example.com/{'%C3%A9' * 150}.jpg",
        f"https://example.com/{long}",
        "data:image/png;base64,aGk=",
        "data:text/plain;charset=utf-8,hi",
        "data:,hi",
        "data:nonsense,hi",
        "data:application/x-unknown,hi",
    ]
    real, ours = (json.loads(done.stdout) for done in both(FILENAMES, json.dumps(urls)))
    assert dict(zip(urls, real, strict=True)) == dict(zip(urls, ours, strict=True))


def test_suppressed_output_is_not_shown():
    for done in both(SILENCE):
        assert (done.stdout, done.stderr) == ("before\nafter\n", "and after")


def test_a_served_model_can_suppress_output(start_server, tmp_path):
    (tmp_path / "cog.yaml").write_text("predict: predict.py:Predictor\n")
    (tmp_path / "predict.py").write_text(
        "from cog import BasePredictor\n"
        "from cog.suppress_output import suppress_output\n"
        "class Predictor(BasePredictor):\n"
        "    def predict(self) -> str:\n"
        "        print('seen')\n"
        "        with suppress_output():\n"
        "            print('hidden')\n"
        "        print('seen again')\n"
        "        return 'done'\n"
    )
    server = start_server(tmp_path)
    reply = server.predict().json
    assert (reply["output"], reply["logs"]) == ("done", "seen\nseen again\n")
    assert "hidden" not in server.log()
