"""Errors in cog.yaml and in the code are shown with file and line."""

import re

import pytest
from waiting import wait_until

GOOD_CODE = "class Predictor:\n    def predict(self, text: str = 'x') -> str:\n        return text\n"
GOOD_YAML = "predict: predict.py:Predictor\n"

#: name: (cog.yaml, predict.py, file, line, words that must be in the message)
BROKEN = {
    "yaml syntax": ("predict: 'predict.py:Predictor\nbuild: [\n", GOOD_CODE, "cog.yaml", None, []),
    "yaml bad indent": ("build:\n  gpu: true\n bad: 1\n", GOOD_CODE, "cog.yaml", 3, []),
    "no predict": ("build:\n  gpu: false\n", GOOD_CODE, "cog.yaml", None, ["predict"]),
    "predict is a number": ("build: {}\npredict: 5\n", GOOD_CODE, "cog.yaml", 2, ["predict"]),
    "file is missing": ("predict: nope.py:Predictor\n", GOOD_CODE, "cog.yaml", 1, ["nope.py"]),
    "class is missing": ("predict: predict.py:Nope\n", GOOD_CODE, "predict.py", None, ["Nope"]),
    "concurrency is text": (
        GOOD_YAML + "concurrency:\n  max: lots\n",
        GOOD_CODE,
        "cog.yaml",
        3,
        ['"lots"', "expected a positive number"],
    ),
    "concurrency is negative": (
        GOOD_YAML + "concurrency:\n  max: -1\n",
        GOOD_CODE,
        "cog.yaml",
        3,
        ["-1", "expected a positive number"],
    ),
    "misspelt key": ("predct: predict.py:Predictor\n", GOOD_CODE, "cog.yaml", 1, ["did you mean `predict`?"]),
    "misspelt section": (
        GOOD_YAML + "concurency:\n  max: 2\n",
        GOOD_CODE,
        "cog.yaml",
        2,
        ["did you mean `concurrency`?"],
    ),
    "misspelt key of a section": (
        GOOD_YAML + "build:\n  python_pakages: []\n",
        GOOD_CODE,
        "cog.yaml",
        3,
        ["did you mean `python_packages`?"],
    ),
    "code syntax": (GOOD_YAML, "x = 1\ndef broken(:\n    pass\n", "predict.py", 2, ["SyntaxError"]),
    "code raises": (
        GOOD_YAML,
        "x = 1\ny = 2\nz = 1 / 0\n" + GOOD_CODE,
        "predict.py",
        3,
        ["ZeroDivisionError"],
    ),
    "unsupported type": (
        GOOD_YAML,
        "class Predictor:\n    def predict(self, picture: bytes) -> str:\n        return ''\n",
        "predict.py",
        2,
        ["picture", "bytes"],
    ),
    "no return type": (
        GOOD_YAML,
        "class Predictor:\n    def predict(self, text: str):\n        return ''\n",
        "predict.py",
        2,
        ["return"],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_terminal_shows_file_and_line(start_server, tmp_path, name):
    yaml, code, file, line, words = BROKEN[name]
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "cog.yaml").write_text(yaml)
    (folder / "predict.py").write_text(code)
    server = start_server(folder, until=())

    where = rf"{re.escape(file)}(:{line}\b|\", line {line}\b)" if line else re.escape(file)
    wait_until(
        lambda: re.search(where, server.log()),
        f"{file}:{line} on the terminal; it shows:\n{server.log()}",
        10,
    )
    assert [word for word in words if word not in server.log()] == []


def test_a_broken_cog_yaml_ends_the_command(tidegate, tmp_path):
    (tmp_path / "cog.yaml").write_text("predict: [\n")
    done = tidegate("serve", tmp_path, "--port", "0")
    assert done.returncode not in (0, 101)  # 101 is a panic
    assert "cog.yaml" in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["yaml bad indent", "predict is a number", "concurrency is text"])
def test_a_location_in_cog_yaml_is_shown_once(tidegate, tmp_path, name):
    yaml, _, _, line, _ = BROKEN[name]
    (tmp_path / "cog.yaml").write_text(yaml)
    shown = tidegate("serve", tmp_path, "--port", "0").stderr
    assert shown.count(f"line {line}") == 0 and shown.count(f"cog.yaml:{line}:") == 1, shown


@pytest.mark.parametrize("has_yaml", [False, True])
def test_the_code_of_a_cog_model_instead_of_its_folder(tidegate, tmp_path, has_yaml):
    (tmp_path / "predict.py").write_text(GOOD_CODE)
    if has_yaml:
        (tmp_path / "cog.yaml").write_text(GOOD_YAML)
    done = tidegate("serve", tmp_path / "predict.py", "--port", "0")
    assert done.returncode == 64
    assert "needs a cog.yaml" in done.stderr
    assert f"`{tmp_path}`" in done.stderr
    assert ("tidegate init" in done.stderr) is not has_yaml


def test_a_folder_without_cog_yaml(tidegate, tmp_path):
    done = tidegate("serve", tmp_path, "--port", "0")
    assert done.returncode not in (0, 101)
    assert "cog.yaml" in done.stderr and str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_not_there(tidegate, tmp_path):
    done = tidegate("serve", tmp_path / "nowhere", "--port", "0")
    assert done.returncode not in (0, 101)
    assert "nowhere" in done.stderr and "Traceback" not in done.stderr
