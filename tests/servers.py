"""The two servers under test, started the way a user would start them.

`start_cog` runs the real `cog==0.23.1` without Docker; `start_tidegate` runs our binary.  Both
return a `Server`: the process, its URL and a small HTTP client.  Every wait is bounded.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import requests
import yaml

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "tests" / "models"
START_TIMEOUT = 30.0
WAIT_TIMEOUT = 15.0
POLL_INTERVAL = 0.01

T = TypeVar("T")

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
    # `absolute`, not `resolve`: a venv's python is a symlink and must be called by its own name.
    return (ROOT / os.environ.get(name, default)).absolute()


def tidegate_bin() -> Path:
    return _path_from_env("TIDEGATE_BIN", "target/debug/tidegate")


def shim_python() -> Path:
    """A Python without the `cog` package: `import cog` is answered by tidegate's shim."""
    return _path_from_env("TIDEGATE_TEST_PYTHON", ".venv/bin/python")


def cog_python() -> Path:
    """A Python with the real `cog==0.23.1`."""
    return _path_from_env("TIDEGATE_TEST_COG_PYTHON", ".venv-cog/bin/python")


def runpod_python() -> Path:
    """A Python with the real `runpod==1.12.0`."""
    return _path_from_env("TIDEGATE_TEST_RUNPOD_PYTHON", ".venv-runpod/bin/python")


def clean_env(**extra: str) -> dict[str, str]:
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in _FOREIGN_ENV and not name.startswith(_FOREIGN_ENV_PREFIXES)
    }
    return env | extra


def tidegate_env(python: Path | None = None, **extra: str) -> dict[str, str]:
    # The receivers of the tests are on this machine.
    usual = {
        "TIDEGATE_PYTHON": str(python or shim_python()),
        "TIDEGATE_ALLOW_PRIVATE_NETWORKS": "127.0.0.0/8",
        # Those that test what survives say where.
        "TIDEGATE_DATA_DIR": "none",
    }
    return clean_env(**usual | extra)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(probe: Callable[[], T], what: str, timeout: float = WAIT_TIMEOUT) -> T:
    """Call `probe` until it answers something true; fail after `timeout` seconds, saying `what`."""
    deadline = time.monotonic() + timeout
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain for {what}; last answer: {answer!r}")
        time.sleep(POLL_INTERVAL)
    return answer


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def content_type(self) -> str | None:
        return self.headers.get("content-type")

    @property
    def detail(self) -> list[dict[str, Any]]:
        return self.json["detail"]

    def __str__(self) -> str:
        return f"{self.status} {self.body[:2000].decode(errors='replace')}"


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    name: str
    data: Any


class EventStream:
    """An open SSE response; iterate over its events."""

    def __init__(self, response: requests.Response) -> None:
        self.response = response
        self.status = response.status_code
        self.headers = response.headers
        self._events = self._parse()

    def _parse(self) -> Iterator[Event]:
        name, data = "", []
        for line in self.response.iter_lines(chunk_size=1):
            text = line.decode()
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("data: "):
                data.append(text.removeprefix("data: "))
            elif not text and name:
                yield Event(name, json.loads("\n".join(data)))
                name, data = "", []

    def __iter__(self) -> Iterator[Event]:
        return self._events

    def next(self, name: str) -> Event:
        """The next event called `name`; others before it are passed over."""
        for event in self._events:
            if event.name == name:
                return event
        raise AssertionError(f"the stream ended without an event {name!r}")

    def rest(self) -> list[Event]:
        return list(self._events)

    def close(self) -> None:
        self.response.close()


@dataclass
class Server:
    kind: str
    model: str
    port: int
    process: subprocess.Popen[bytes]
    log_path: Path
    directory: Path
    log_mark: int = 0
    #: The certificate that a server with TLS is known by.
    certificate: Path | None = None
    _session: requests.Session = field(default_factory=requests.Session)

    @property
    def is_cog(self) -> bool:
        return self.kind == "cog"

    @property
    def url(self) -> str:
        return f"{'https' if self.certificate else 'http'}://127.0.0.1:{self.port}"

    def request(self, method: str, path: str, *, timeout: float = WAIT_TIMEOUT, **options: Any) -> Reply:
        if self.certificate:
            options["verify"] = str(self.certificate)  # a session's own would yield to the environment
        answer = self._session.request(
            method, self.url + path, timeout=timeout, allow_redirects=False, **options
        )
        return Reply(answer.status_code, answer.headers, answer.content)

    def get(self, path: str, **options: Any) -> Reply:
        return self.request("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        return self._create("POST", path, body, options)

    def put(self, path: str, body: Any = None, **options: Any) -> Reply:
        return self._create("PUT", path, body, options)

    def _create(self, method: str, path: str, body: Any, options: dict[str, Any]) -> Reply:
        if body is not None:
            options["json"] = body
        return self.request(method, path, **options)

    def predict(
        self,
        input: dict[str, Any] | None = None,
        *,
        id: str | None = None,
        path: str = "/predictions",
        prefer: str | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = WAIT_TIMEOUT,
        **envelope: Any,
    ) -> Reply:
        """A create request that expects a free slot.

        Cog frees a slot some time after the answer, so its 409 is retried.  Ours never is: a 409
        right after an answer is the bug of improvement 3.
        """
        body = {"input": input or {}, **envelope}
        all_headers = dict(headers or {})
        if prefer:
            all_headers["Prefer"] = prefer
        if id is not None:
            body["id"] = id

        def attempt() -> Reply | None:
            reply = self.post(path, body, headers=all_headers, timeout=timeout)
            return None if self.is_cog and reply.status == 409 else reply

        return wait_until(attempt, "a free slot")

    def start(self, input: dict[str, Any] | None = None, **options: Any) -> Reply:
        """An asynchronous prediction; asserts that it is accepted."""
        reply = self.predict(input, prefer="respond-async", **options)
        assert reply.status == 202, str(reply)
        return reply

    @contextmanager
    def in_background(self, *arguments: Any, **options: Any) -> Iterator[Background]:
        """A synchronous prediction on a connection of its own, while the test does other things."""
        job = Background(lambda: self.sibling().predict(*arguments, **options))
        try:
            yield job
        finally:
            job.join()

    def sibling(self) -> Server:
        """The same server seen through another connection pool (sessions are not for threads)."""
        return Server(
            self.kind,
            self.model,
            self.port,
            self.process,
            self.log_path,
            self.directory,
            certificate=self.certificate,
        )

    def stream(
        self, input: dict[str, Any] | None = None, *, id: str | None = None, **envelope: Any
    ) -> EventStream:
        """Open an SSE response: POST, or PUT when `id` is given."""
        method, path = ("PUT", f"/predictions/{id}") if id else ("POST", "/predictions")

        def attempt() -> EventStream | None:
            answer = requests.request(
                method,
                self.url + path,
                json={"input": input or {}, **envelope},
                headers={"Accept": "text/event-stream"},
                stream=True,
                timeout=WAIT_TIMEOUT,
            )
            return None if self.is_cog and answer.status_code == 409 else EventStream(answer)

        return wait_until(attempt, "a free slot")

    def snapshot(self, id: str) -> dict[str, Any]:
        """The state of a prediction that is known to be in flight, by an idempotent PUT."""
        reply = self.put(f"/predictions/{id}", {"input": {}})
        assert reply.status == 202, str(reply)
        return reply.json

    def cancel(self, id: str, path: str = "/predictions") -> Reply:
        return self.post(f"{path}/{id}/cancel")

    def health(self) -> dict[str, Any]:
        return self.get("/health-check").json

    def wait_health(self, *statuses: str, timeout: float = START_TIMEOUT) -> dict[str, Any]:
        """Poll until the health is one of `statuses`."""

        def probe() -> dict[str, Any] | None:
            if self.process.poll() is not None:
                raise AssertionError(f"{self.kind} exited with {self.process.returncode}\n{self.log()}")
            try:
                health = self.get("/health-check", timeout=12).json
            except requests.ConnectionError:
                return None
            return health if health["status"] in statuses else None

        return wait_until(probe, f"{self.kind} {self.model} to be {' or '.join(statuses)}", timeout)

    def wait_idle(self) -> None:
        self.wait_health("READY")

    def log(self) -> str:
        """What the server wrote since `log_mark`."""
        with self.log_path.open("rb") as log:
            log.seek(self.log_mark)
            return log.read().decode(errors="replace")

    def mark_log(self) -> None:
        self.log_mark = self.log_path.stat().st_size

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait_exit(self, timeout: float = WAIT_TIMEOUT) -> int:
        return self.process.wait(timeout)

    def stop(self) -> None:
        self.ask_to_stop()
        self.reap()

    def ask_to_stop(self) -> None:
        self._session.close()
        if self.process.poll() is None:
            self.process.terminate()

    def reap(self, timeout: float = 5.0) -> None:
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            for pid in children_of(self.process.pid):
                _kill(pid)
            self.process.kill()
            self.process.wait(5)


class Background:
    """A call running in a thread; its reply or its exception is fetched with `reply`."""

    def __init__(self, call: Callable[[], Reply]) -> None:
        self._outcome: list[Reply | BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Reply]) -> None:
        try:
            self._outcome.append(call())
        except BaseException as error:
            self._outcome.append(error)

    def join(self) -> None:
        self._thread.join(WAIT_TIMEOUT + 5)

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def reply(self) -> Reply:
        self.join()
        assert self._outcome, "the request got no answer in time"
        outcome = self._outcome[0]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def children_of(pid: int) -> list[int]:
    """All living descendants of `pid`, nearest first."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    frontier = [pid]
    while frontier:
        below = parents.get(frontier.pop(0), [])
        found += below
        frontier += below
    return found


def loaded(server: Server) -> int:
    """How many processes of models a server has."""

    def is_of_a_model(pid: int) -> bool:
        with suppress(OSError):
            return b"tidegate.child" in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    return sum(map(is_of_a_model, children_of(server.process.pid)))


def refuses_connections(server: Server) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=2).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:
        return False  # it was taken in while the door closed
    return False


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def copy_model(model: str | Path, scratch: Path) -> Path:
    """A private copy of a model folder; `model` is a name in tests/models or a path."""
    source = MODELS / model
    target = scratch / source.name
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", ".cog"))
    return target


def _cog_schema(directory: Path, config: dict[str, Any]) -> str:
    """The static schema that `cog build` would bake into the image.

    A model may bring the one made by Cog's own generator (`openapi.json`); else ours is used.
    """
    given = directory / "openapi.json"
    if given.exists():
        return given.read_text()
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
    made = subprocess.run(
        command,
        env=clean_env(PYTHONPATH=python_path),
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT,
        check=False,
    )
    assert made.returncode == 0, f"no schema for {directory.name}:\n{made.stderr}"
    return made.stdout


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
    return _launch("cog", directory, port, command, variables | (env or {}), until)


def start_tidegate(
    model: str | Path,
    scratch: Path,
    *,
    flags: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    python: Path | None = None,
    certificate: Path | None = None,
    until: tuple[str, ...] = ("READY", "SETUP_FAILED", "UNHEALTHY", "DEFUNCT"),
) -> Server:
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
    return _launch(
        "tidegate", directory, port, command, tidegate_env(python, **(env or {})), until, certificate
    )


def start_handler(
    script: str,
    scratch: Path,
    *,
    flags: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    python: Path | None = None,
    until: tuple[str, ...] = ("READY", "SETUP_FAILED", "DEFUNCT"),
) -> Server:
    """Serve a script of tests/models/handlers."""
    directory = copy_model("handlers", scratch)
    port = free_port()
    command = [str(tidegate_bin()), "serve", str(directory / script), "--port", str(port), *flags]
    return _launch("tidegate", directory, port, command, tidegate_env(python, **(env or {})), until)


def start_runpod(script: str, scratch: Path, *, env: dict[str, str] | None = None) -> Server:
    """Serve a script with Runpod's own local API."""
    directory = copy_model("handlers", scratch)
    port = free_port()
    command = [str(runpod_python()), script, "--rp_serve_api", "--rp_api_port", str(port)]
    command += ["--rp_api_host", "127.0.0.1"]
    server = _launch("runpod", directory, port, command, clean_env(**(env or {})), ())

    def answers() -> bool:
        assert server.process.poll() is None, server.log()
        try:
            return server.get("/openapi.json").status == 200
        except requests.ConnectionError:
            return False

    wait_until(answers, "Runpod's own server", START_TIMEOUT)
    return server


def _launch(
    kind: str,
    directory: Path,
    port: int,
    command: list[str],
    env: dict[str, str],
    until: tuple[str, ...],
    certificate: Path | None = None,
) -> Server:
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
