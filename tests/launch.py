"""Start the servers under test the way a user starts them.

`start_cog` runs the real `cog==0.23.1` without Docker, `start_tidegate` and `start_handler` run our
binary, and `start_runpod` runs Runpod's own local API. All return a `Server`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import requests
import yaml
from environment import (
    ROOT,
    clean_env,
    cog_python,
    copy_model,
    free_port,
    runpod_python,
    tidegate_bin,
    tidegate_env,
)
from postgres_server import database_of
from server_process import Server
from waiting import START_TIMEOUT, wait_until


def start_cog(
    model: str | Path,
    scratch: Path,
    *,
    flags: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    schema: bool = True,
    until: tuple[str, ...] = ("READY", "SETUP_FAILED", "UNHEALTHY"),
) -> Server:
    """Start the real Cog server on a model: spec/cog.md §0."""
    directory = copy_model(model, scratch)
    config = yaml.safe_load((directory / "cog.yaml").read_text())
    if schema:
        (directory / ".cog").mkdir()
        (directory / ".cog" / "openapi_schema.json").write_text(_cog_schema(directory, config))
    python = cog_python()
    port = free_port()
    variables = clean_env(PORT=str(port), COG_PREDICT_TYPE_STUB=config.get("run") or config["predict"])
    variables["PATH"] = f"{python.parent}:{variables['PATH']}"
    if "train" in config:
        variables["COG_TRAIN_TYPE_STUB"] = config["train"]
    if "concurrency" in config:
        variables["COG_MAX_CONCURRENCY"] = str(config["concurrency"]["max"])
    for line in config.get("environment", []):
        name, _, value = line.partition("=")
        variables[name] = value
    command = [str(python), "-m", "cog.server.http", "--host", "127.0.0.1", *flags]
    return launch("cog", directory, port, command, variables | (env or {}), until)


def start_tidegate(
    model: str | Path,
    scratch: Path,
    *,
    flags: tuple[str, ...] = (),
    env: dict[str, str | None] | None = None,
    python: Path | None = None,
    certificate: Path | None = None,
    until: tuple[str, ...] = ("READY", "SETUP_FAILED", "UNHEALTHY", "DEFUNCT"),
) -> Server:
    """Serve a model folder with tidegate."""
    directory = copy_model(model, scratch)
    port = free_port()
    command = [
        str(tidegate_bin()),
        "serve",
        str(directory),
        *(() if "--host" in flags else ("--host", "127.0.0.1")),
        "--port",
        str(port),
        *flags,
    ]
    variables = tidegate_env(python, **(env or {}))
    if os.environ.get("TIDEGATE_TEST_POSTGRES"):
        variables |= _database(flags, variables)
    return launch("tidegate", directory, port, command, variables, until, certificate)


def _database(flags: tuple[str, ...], variables: dict[str, str]) -> dict[str, str]:
    """Keep the jobs of a server in PostgreSQL; each data directory has its database."""
    data_dir = variables["TIDEGATE_DATA_DIR"]
    if "--data-dir" in flags:
        data_dir = flags[flags.index("--data-dir") + 1]
    if data_dir == "none" or "TIDEGATE_POSTGRES" in variables or "--postgres" in flags:
        return {}
    return {"TIDEGATE_POSTGRES": database_of(data_dir)}


def start_handler(
    script: str,
    scratch: Path,
    *,
    flags: tuple[str, ...] = (),
    env: dict[str, str | None] | None = None,
    python: Path | None = None,
    until: tuple[str, ...] = ("READY", "SETUP_FAILED", "DEFUNCT"),
) -> Server:
    """Serve a script of tests/models/handlers with tidegate."""
    directory = copy_model("handlers", scratch)
    port = free_port()
    command = [str(tidegate_bin()), "serve", str(directory / script), "--port", str(port), *flags]
    return launch("tidegate", directory, port, command, tidegate_env(python, **(env or {})), until)


def start_runpod(script: str, scratch: Path, *, env: dict[str, str] | None = None) -> Server:
    """Serve a script with Runpod's own local API."""
    directory = copy_model("handlers", scratch)
    port = free_port()
    command = [str(runpod_python()), script, "--rp_serve_api", "--rp_api_port", str(port)]
    command += ["--rp_api_host", "127.0.0.1"]
    server = launch("runpod", directory, port, command, clean_env(**(env or {})), ())

    def is_up() -> bool:
        assert server.process.poll() is None, server.log()
        try:
            return server.get("/openapi.json").status == 200
        except requests.ConnectionError:
            return False

    wait_until(is_up, "Runpod's own server", START_TIMEOUT)
    return server


def launch(
    kind: str,
    directory: Path,
    port: int,
    command: list[str],
    env: dict[str, str],
    until: tuple[str, ...],
    certificate: Path | None = None,
) -> Server:
    """Start a server process; wait until its health status is one of `until`, if there are any."""
    log_path = directory.parent / f"{kind}.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    server = Server(kind, directory.name, port, process, log_path, directory, certificate=certificate)
    if until:
        try:
            server.wait_health(*until)
        except BaseException:
            sys.stderr.write(server.log())
            server.stop()
            raise
    return server


def _cog_schema(directory: Path, config: dict[str, Any]) -> str:
    """The static schema that `cog build` would put into the image.

    A model folder may contain the schema of Cog's own generator (`openapi.json`); otherwise ours is used.
    """
    prebuilt = directory / "openapi.json"
    if prebuilt.exists():
        return prebuilt.read_text()
    command = [
        str(cog_python()),
        "-m",
        "tidegate.schema",
        str(directory),
        "--predict",
        config.get("run") or config["predict"],
    ]
    if "train" in config:
        command += ["--train", config["train"]]
    python_path = os.environ.get("TIDEGATE_TEST_SCHEMA_PATH", str(ROOT / "python"))
    done = subprocess.run(
        command,
        env=clean_env(PYTHONPATH=python_path),
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, f"no schema for {directory.name}:\n{done.stderr}"
    return done.stdout
