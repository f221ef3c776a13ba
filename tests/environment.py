"""Paths, interpreters and environment variables of the servers under test."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "tests" / "models"

#: The ports of servers, below the range of outgoing connections, and the file with the last one.
PORTS = range(11000, 32000)
PORT_COUNTER = Path(tempfile.gettempdir()) / f"tidegate-test-port-{os.getuid()}"

#: Variables of the developer's shell that would change what a server does.
_FOREIGN_ENV_PREFIXES = ("COG_", "TIDEGATE_", "OTEL_", "RUNPOD_")
_FOREIGN_ENV = (
    "PORT",
    "RUST_LOG",
    "LOG_FORMAT",
    "WEBHOOK_AUTH_TOKEN",
    "KUBERNETES_SERVICE_HOST",
    "PYTHONPATH",
)


def _path_from_env(name: str, default: str) -> Path:
    # `absolute`, not `resolve`: a virtualenv's python is a symlink and must be called by its own name.
    return (ROOT / os.environ.get(name, default)).absolute()


def tidegate_bin() -> Path:
    return _path_from_env("TIDEGATE_BIN", "target/debug/tidegate")


def planted_bugs_bin() -> Path:
    """The program with planted bugs; see docs/torture.md."""
    return _path_from_env("TIDEGATE_PLANTED_BUGS_BIN", "target/planted-bugs/tidegate")


def shim_python() -> Path:
    """A Python without the `cog` package: `import cog` finds tidegate's shim."""
    return _path_from_env("TIDEGATE_TEST_PYTHON", ".venv/bin/python")


def cog_python() -> Path:
    """A Python with the real `cog==0.23.1`."""
    return _path_from_env("TIDEGATE_TEST_COG_PYTHON", ".venv-cog/bin/python")


def runpod_python() -> Path:
    """A Python with the real `runpod==1.12.0`."""
    return _path_from_env("TIDEGATE_TEST_RUNPOD_PYTHON", ".venv-runpod/bin/python")


def clean_env(**extra: str) -> dict[str, str]:
    """The environment of this process without variables that servers read, plus `extra`."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in _FOREIGN_ENV and not name.startswith(_FOREIGN_ENV_PREFIXES)
    }
    return env | extra


def tidegate_env(python: Path | None = None, **extra: str | None) -> dict[str, str]:
    """The environment of a tidegate process; a variable that is None in `extra` is left out."""
    defaults = {
        "TIDEGATE_PYTHON": str(python or shim_python()),
        # The webhook receivers of the tests are on this machine.
        "TIDEGATE_ALLOW_PRIVATE_NETWORKS": "127.0.0.0/8",
        # Tests of durable jobs set a data directory themselves.
        "TIDEGATE_DATA_DIR": "none",
    }
    return clean_env(**{name: value for name, value in (defaults | extra).items() if value is not None})


def free_port() -> int:
    """A port that no other test gets, and that the kernel gives to no outgoing connection.

    A server that is started with it may bind it later; a port of the ephemeral range could be in use by then.
    """
    with PORT_COUNTER.open("a+") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.seek(0)
        last = int(counter.read() or PORTS.start)
        for offset in range(1, len(PORTS)):
            port = PORTS[(last - PORTS.start + offset) % len(PORTS)]
            if _can_bind(port):
                counter.truncate(0)
                counter.write(str(port))
                return port
    raise RuntimeError(f"no free port in {PORTS}")


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def copy_model(model: str | Path, scratch: Path) -> Path:
    """A private copy of a model folder; `model` is a name in tests/models or a path."""
    source = MODELS / model
    target = scratch / source.name
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".cog"))
    return target
