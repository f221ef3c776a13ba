"""`tidegate install`: the Python packages of models."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from environment import ROOT, clean_env, shim_python, tidegate_bin, tidegate_env
from waiting import wait_until

#: The package of these tests: a module with its version, which exists only in wheels made here.
PACKAGE = "tidegate_test_package"

CODE = f"""
import sys
import {PACKAGE}

class Predictor:
    def predict(self) -> dict:
        return {{"version": {PACKAGE}.VERSION, "prefix": sys.prefix}}
"""

#: A `uv` that needs no network: it installs modules with a version, and can wait for a file.
FAKE_UV = f"""#!{sys.executable}
import os, pathlib, subprocess, sys, time

with open(os.environ["FAKE_UV_CALLS"], "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "venv":
    subprocess.run(["{shim_python()}", "-m", "venv", "--without-pip", sys.argv[-1]], check=True)
    sys.exit()
gate = os.environ.get("FAKE_UV_GATE")
print("Resolved 1 package", flush=True)
while gate and not os.path.exists(gate):
    time.sleep(0.02)
if any(word.startswith("broken") for word in sys.argv):
    sys.exit(f"error: no version of {{sys.argv[-1]}} was found")
(site,) = pathlib.Path(sys.argv[4]).parents[1].glob("lib/*/site-packages")
words = iter(sys.argv[5:])
requirements = [line for word in words for line in (open(next(words)) if word == "-r" else [word])]
for requirement in map(str.strip, requirements):
    name, _, version = requirement.partition("==")
    (site / f"{{name}}.py").write_text(f"VERSION = {{version!r}}\\n")
    info = site / f"{{name}}-{{version}}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {{name}}\\nVersion: {{version}}\\n")
"""


def write_model(folder: Path, yaml: str, code: str = CODE, **files: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "cog.yaml").write_text(f"predict: predict.py:Predictor\n{yaml}")
    (folder / "predict.py").write_text(code)
    for name, text in files.items():
        (folder / name.replace("_txt", ".txt")).write_text(text)
    return folder


def needs(*packages: str) -> str:
    return f"build:\n  python_packages: {json.dumps(packages)}\n"


def write_wheel(folder: Path, version: str) -> None:
    info = f"{PACKAGE}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{PACKAGE}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{PACKAGE}.py", f"VERSION = {version!r}\n")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def run(*arguments: Any, env: dict[str, str], timeout: float = 200) -> subprocess.CompletedProcess[str]:
    command = [str(tidegate_bin()), *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)


def without_uv() -> str:
    """The `PATH` without folders that have a `uv`."""
    folders = os.environ["PATH"].split(":")
    return ":".join(folder for folder in folders if not (Path(folder) / "uv").exists())


@pytest.fixture
def fake_uv(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with our `uv`."""
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "uv").write_text(FAKE_UV)
    (bin / "uv").chmod(0o755)
    return {
        "PATH": f"{bin}:{without_uv()}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "FAKE_UV_CALLS": str(tmp_path / "calls"),
    }


def calls_of(fake_uv: dict[str, str]) -> list[str]:
    file = Path(fake_uv["FAKE_UV_CALLS"])
    return file.read_text().splitlines() if file.exists() else []


def environments_in(fake_uv: dict[str, str]) -> list[Path]:
    """The folders of environments, complete or not."""
    folder = Path(fake_uv["XDG_STATE_HOME"]) / "tidegate" / "environments"
    return [path for path in folder.glob("*") if path.is_dir() and not path.is_symlink()]


@pytest.fixture
def conflicting(fake_uv, tmp_path: Path) -> Path:
    """Two models with conflicting pins, which are installed."""
    models = tmp_path / "models"
    write_model(models / "one", needs(f"{PACKAGE}==1.0"))
    write_model(models / "two", needs(f"{PACKAGE}==2.0"))
    done = run("install", models, env=tidegate_env(**fake_uv))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    return models


def test_models_with_conflicting_pins_run_in_one_server(conflicting, fake_uv, start_server):
    server = start_server(conflicting, env=fake_uv)
    results = [
        server.post(f"/models/local/{name}/predictions", {"input": {}}).json["output"]
        for name in ("one", "two")
    ]
    assert [result["version"] for result in results] == ["1.0", "2.0"]
    assert results[0]["prefix"] != results[1]["prefix"]


def test_every_command_uses_the_environment(conflicting, fake_uv):
    env = tidegate_env(**fake_uv)
    done = run("predict", conflicting / "two", env=env)
    assert (done.returncode, json.loads(done.stdout)["version"]) == (0, "2.0"), done.stderr
    done = run("worker", conflicting / "one", "--test-input", '{"input": {}}', env=env)
    assert done.returncode == 0 and "1.0" in done.stdout + done.stderr, done.stderr
    done = run("doctor", conflicting / "one", env=env)
    assert done.returncode == 0 and "environments/" in done.stdout, done.stdout
    assert run("schema", conflicting / "one", env=env).returncode == 0


def test_an_installed_program_lends_its_package_to_environments(fake_uv, tmp_path):
    """Without a checkout, and without the other packages of the program's own environment."""
    home = tmp_path / "home"
    subprocess.run([shim_python(), "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/*/site-packages")
    shutil.copytree(ROOT / "python" / "tidegate", site / "tidegate")
    (site / f"{PACKAGE}.py").write_text("VERSION = 'of the program'\n")
    (site / "only_of_the_program.py").touch()
    program = home / "bin" / "tidegate"
    shutil.copy(tidegate_bin(), program)
    code = CODE.replace("import sys", "import importlib.util, sys")
    code = code.replace("sys.prefix", "str(importlib.util.find_spec('only_of_the_program'))")
    model = write_model(tmp_path / "model", needs(f"{PACKAGE}==1.0"), code)
    env = clean_env(**fake_uv)
    subprocess.run([program, "install", model], env=env, check=True, timeout=30)
    output = subprocess.check_output([program, "predict", model], env=env, text=True, timeout=30)
    assert json.loads(output) == {"version": "1.0", "prefix": "None"}


def path_with(installer: str) -> str:
    """The `PATH` of a machine that has the real uv, or only pip."""
    return f"{Path(sys.executable).parent}:{without_uv()}" if installer == "uv" else without_uv()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_the_requirements_file_is_installed(installer, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    write_wheel(wheels, "1.0")
    write_wheel(wheels, "2.0")
    requirements = f"# pinned\n--no-index\n--find-links {wheels}\n{PACKAGE}==1.0  # not the newest\n"
    yaml = "build:\n  python_requirements: requirements.txt\n"
    model = write_model(tmp_path / "model", yaml, requirements_txt=requirements)
    env = tidegate_env(XDG_STATE_HOME=str(tmp_path / "state"), PATH=path_with(installer))
    done = run("install", model, env=env)
    assert done.returncode == 0, done.stderr
    assert f"with {installer}" in done.stderr
    assert "installing packages" in done.stderr and "installed after" in done.stderr
    assert json.loads(run("predict", model, env=env).stdout)["version"] == "1.0"
    again = run("install", model, env=env)
    assert (again.returncode, again.stdout) == (0, done.stdout) and "installing" not in again.stderr


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("installer", "message"),
    [
        ("pip", "No matching distribution found for no-such-package-at-all==9.9"),
        ("uv", "no-such-package-at-all was not found"),
    ],
)
def test_a_failed_installation_names_the_requirement_and_the_error(installer, message, tmp_path):
    model = write_model(tmp_path / "model", needs("--no-index", "no-such-package-at-all==9.9"))
    env = tidegate_env(XDG_STATE_HOME=str(tmp_path / "state"), PATH=path_with(installer))
    done = run("install", model, env=env)
    assert done.returncode == 1
    assert f"requirement: no-such-package-at-all==9.9 (`python_packages` in {model}/cog.yaml)" in done.stderr
    assert message in done.stderr, done.stderr
    assert environments_in({"XDG_STATE_HOME": str(tmp_path / "state")}) == []


def test_an_import_error_compares_pinned_with_installed_packages(start_server, tmp_path):
    model = write_model(tmp_path / "model", needs(f"{PACKAGE}==1.0", "pytest==0.0.1"))
    server = start_server(model, until=("SETUP_FAILED",), env={"XDG_STATE_HOME": str(tmp_path / "state")})
    logs = server.health()["setup"]["logs"]
    assert f"No module named '{PACKAGE}'" in logs
    assert f"{PACKAGE}==1.0 (not installed)" in logs
    assert f"pytest==0.0.1 (installed: {pytest.__version__})" in logs
    assert f"tidegate install {server.directory}" in logs
    wait_until(lambda: "cannot run predictions" in server.log(), "the notice", 5)
    (notice,) = [line for line in server.log().splitlines() if "cannot run predictions" in line]
    assert notice.endswith(f"ModuleNotFoundError: No module named '{PACKAGE}'")


def test_credentials_of_a_requirement_are_not_shown(fake_uv, start_server, tmp_path):
    secret = "s3cret-t0ken"
    package = f"broken @ git+https://x:{secret}@example.com/broken.git"
    model = write_model(tmp_path / "model", needs(package))
    done = run("install", model, env=tidegate_env(**fake_uv))
    assert done.returncode == 1 and "requirement: broken @ git+https://example.com" in done.stderr
    assert secret in calls_of(fake_uv)[-1] and secret not in done.stderr + done.stdout
    server = start_server(model, until=("SETUP_FAILED",), env=fake_uv)
    assert "broken @ git+https://example.com" in server.health()["setup"]["logs"]
    assert secret not in json.dumps(server.health()) + server.log()


def test_doctor_compares_pinned_with_installed_packages(tmp_path):
    model = write_model(tmp_path / "model", needs(f"{PACKAGE}==1.0", "pytest==0.0.1", "requests"))
    done = run("doctor", model, env=tidegate_env(XDG_STATE_HOME=str(tmp_path / "state")))
    assert done.returncode == 1
    assert f"{PACKAGE}==1.0 (not installed)" in done.stdout
    assert f"pytest==0.0.1 (installed: {pytest.__version__})" in done.stdout
    assert "requests" not in done.stdout
    assert f"try: tidegate install {model}" in done.stdout


def test_concurrent_installations_create_one_environment(fake_uv, tmp_path):
    model = write_model(tmp_path / "model", needs(f"{PACKAGE}==1.0"))
    gate = tmp_path / "gate"
    env = tidegate_env(**fake_uv, FAKE_UV_GATE=str(gate))
    command = [str(tidegate_bin()), "install", str(model)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, env=env, **pipes) for _ in range(2)]
    try:
        wait_until(lambda: len(calls_of(fake_uv)) == 2, "one of them to install")
    finally:
        gate.touch()
    results = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert results[0][0] == results[1][0] != ""
    assert len(calls_of(fake_uv)) == 2 and len(environments_in(fake_uv)) == 1
    assert any("waiting for another process" in stderr for _, stderr in results)


def test_a_killed_installation_leaves_no_environment(fake_uv, tmp_path):
    model = write_model(tmp_path / "model", needs(f"{PACKAGE}==1.0"))
    gate = tmp_path / "gate"
    env = tidegate_env(**fake_uv)
    command = [str(tidegate_bin()), "install", str(model)]
    process = subprocess.Popen(command, env=env | {"FAKE_UV_GATE": str(gate)}, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(calls_of(fake_uv)) == 2, "it to install")
        (half,) = environments_in(fake_uv)
        process.kill()
        process.wait()
        failed = run("predict", model, env=env)
        assert failed.returncode == 1 and f"tidegate install {model}" in failed.stderr
    finally:
        gate.touch()
    done = run("install", model, env=env)
    assert done.returncode == 0, done.stderr
    assert not half.exists() and environments_in(fake_uv) == [Path(done.stdout.strip())]
    assert json.loads(run("predict", model, env=env).stdout)["version"] == "1.0"


def test_a_failure_of_one_model_does_not_prevent_the_others(fake_uv, tmp_path):
    models = tmp_path / "models"
    write_model(models / "bad", needs("broken==9"))
    write_model(models / "good", needs(f"{PACKAGE}==1.0"))
    done = run("install", models, env=tidegate_env(**fake_uv))
    assert done.returncode == 1
    assert "requirement: broken==9" in done.stderr and "no version of broken==9" in done.stderr
    assert len(environments_in(fake_uv)) == 1


def test_the_version_of_python_selects_the_interpreter(fake_uv, tmp_path):
    version = "build:\n  python_version: '3.99'\n"
    model = write_model(tmp_path / "model", version)
    assert run("install", model, env=tidegate_env(**fake_uv)).returncode == 0
    assert calls_of(fake_uv)[0].startswith("venv --python 3.99 ")

    missing = run("install", model, env=tidegate_env(XDG_STATE_HOME=str(tmp_path), PATH=without_uv()))
    assert missing.returncode == 64 and "this machine has no `python3.99`" in missing.stderr
    old = write_model(tmp_path / "old", "build:\n  python_version: '3.8'\n")
    refused = run("install", old, env=tidegate_env(**fake_uv))
    assert refused.returncode == 64 and "3.10 or newer" in refused.stderr


def test_serve_installs_on_the_way_and_again_for_a_new_version(fake_uv, start_server, tmp_path):
    model = write_model(tmp_path / "model", needs(f"{PACKAGE}==1.0"))
    data = tmp_path / "data"
    server = start_server(model, "--install", "--data-dir", str(data), env=fake_uv)
    assert server.predict().json["output"]["version"] == "1.0"
    assert server.predict().json["output"]["prefix"].startswith(str(data / "environments"))
    yaml = server.directory / "cog.yaml"
    yaml.write_text(yaml.read_text().replace("==1.0", "==2.0"))
    server.signal(signal.SIGHUP)
    wait_until(lambda: server.predict().json["output"]["version"] == "2.0", "the new version", 30)


def test_serve_installs_the_requirements_of_a_relative_folder(fake_uv, tmp_path):
    model = write_model(
        tmp_path / "k" / "both",
        "build:\n  python_requirements: req.txt\n",
        req_txt=f"{PACKAGE}==1.0\n",
    )
    env = tidegate_env(**fake_uv, TIDEGATE_DATA_DIR="none")
    command = [str(tidegate_bin()), "serve", "k/both", "--install", "--port", "0", "--progress", "plain"]
    log = tmp_path / "log"
    with log.open("w") as stderr:
        server = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=stderr, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: "ready after" in log.read_text() or server.poll() is not None, "the model", 60)
        assert server.poll() is None, log.read_text()
    finally:
        server.terminate()
        server.wait(30)
    assert f"-r {model}/req.txt" in calls_of(fake_uv)[-1]


#: A build backend without dependencies, which leaves files in the folder as setuptools does.
BACKEND = f"""
import pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    for name in ("build/lib/x.py", "x.egg-info/PKG-INFO"):
        pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(name).write_text("made by the build")
    name, info = "{PACKAGE}-1.0-py3-none-any.whl", "{PACKAGE}-1.0.dist-info"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.writestr("{PACKAGE}.py", "VERSION = 'local'\\n")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: {PACKAGE}\\nVersion: 1.0\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return name
"""


@pytest.mark.timeout(240)
def test_a_package_that_is_built_in_its_folder_is_installed_once(tmp_path):
    yaml = "build:\n  python_requirements: req.txt\n"
    model = write_model(tmp_path / "model", yaml, req_txt="./pkg\n")
    package = model / "pkg"
    package.mkdir()
    (package / "backend.py").write_text(BACKEND)
    (package / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        f"[project]\nname = '{PACKAGE}'\nversion = '1.0'\n"
    )
    env = tidegate_env(XDG_STATE_HOME=str(tmp_path / "state"), PATH=path_with("pip"))
    done = run("install", model, env=env)
    assert done.returncode == 0 and (package / "x.egg-info").exists(), done.stderr
    assert json.loads(run("predict", model, env=env).stdout)["version"] == "local"
    again = run("install", model, env=env)
    assert again.stdout == done.stdout and "installing" not in again.stderr


def test_an_installation_continues_when_the_model_dies(fake_uv, start_server, tmp_path):
    code = CODE.replace("import sys", "import os, sys").replace("sys.prefix", "os.getpid()")
    model = write_model(tmp_path / "model", needs(f"{PACKAGE}==1.0"), code)
    gate = tmp_path / "gate"
    gate.touch()
    env = fake_uv | {"FAKE_UV_GATE": str(gate)}
    server = start_server(model, "--install", "--data-dir", str(tmp_path / "data"), env=env)

    def output() -> dict[str, Any]:
        return server.predict().json.get("output") or {}

    pid = output()["prefix"]
    gate.unlink()
    yaml = server.directory / "cog.yaml"
    yaml.write_text(yaml.read_text().replace("==1.0", "==2.0"))
    server.signal(signal.SIGHUP)
    try:
        wait_until(lambda: len(calls_of(fake_uv)) == 4, "the installer to run", 30)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: output().get("prefix", pid) != pid, "another process of the model", 30)
    finally:
        gate.touch()
    wait_until(lambda: output().get("version") == "2.0", "the new version", 30)


KEYS = """weights:
  src: there
build:
  python_version: "3.99"
  gpu: true
  cuda: "12.1"
  cudnn: "8"
  run: [echo]
  pre_install: [echo]
  system_packages: [no-such-system-package, bash]
"""


def test_what_differs_or_has_no_effect_is_named_once(start_server, tmp_path):
    code = CODE.replace(f"import {PACKAGE}\n", "").replace(f"{PACKAGE}.VERSION", "1")
    model = write_model(tmp_path / "model", KEYS, code)
    server = start_server(model, "--workers", "2", env={"XDG_STATE_HOME": str(tmp_path / "state")})
    log = server.log()
    for text in (
        "cog.yaml asks for Python 3.99, and the model runs with Python ",
        "`system_packages` that are not installed: no-such-system-package;",
        "sudo apt-get install -y no-such-system-package`",
        "keys in cog.yaml without effect: `weights`, `build.pre_install`",
        "`build.gpu` in cog.yaml asks for a GPU, and there is none for the model: it runs on the CPU",
        "`build.cuda` and `build.cudnn` in cog.yaml have no effect",
        "`build.run` in cog.yaml is not executed",
    ):
        assert log.count(text) == 1, f"{text}:\n{log}"


def test_mistakes_in_the_folder_are_explained(tmp_path):
    env = tidegate_env(XDG_STATE_HOME=str(tmp_path / "state"))
    done = run("install", tmp_path / "nowhere", env=env)
    assert done.returncode == 64 and "nowhere" in done.stderr
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run("install", empty, env=env)
    assert done.returncode == 64 and "cog.yaml" in done.stderr
    plain = write_model(tmp_path / "plain", "")
    done = run("install", plain, env=env)
    assert done.returncode == 0 and "lists no packages" in done.stderr
