"""A small fake server: starts the real child and uses the real wire format.

It uses only the standard library, blocking sockets and deadlines. It makes no assertions about results.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent.parent
LIMIT = 60.0  # seconds; large outputs take long on a busy machine
START = "from tidegate.child import main; main()"


class Closed(Exception):
    """The child has closed a channel."""


class Channel:
    """Sends and receives frames on descriptors."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd, self._write_fd = read_fd, write_fd
        self._data = b""

    def send(self, message: object) -> None:
        body = json.dumps(message).encode()
        self.send_raw(struct.pack("<I", len(body)) + body)

    def send_raw(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._write_fd, data) :]

    def recv(self, limit: float = LIMIT) -> dict[str, Any] | str:
        deadline = time.monotonic() + limit
        while True:
            if len(self._data) >= 4:
                (length,) = struct.unpack_from("<I", self._data)
                assert length <= 64 << 20, "not a frame"
                if len(self._data) >= 4 + length:
                    body, self._data = self._data[4 : 4 + length], self._data[4 + length :]
                    return json.loads(body)
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read_fd], [], [], left)[0]:
                raise TimeoutError(f"no message within {limit} s")
            chunk = os.read(self._read_fd, 1 << 20)
            if not chunk:
                raise Closed
            self._data += chunk


class Child:
    """One child process with one model."""

    def __init__(
        self,
        source: str,
        *,
        ref: str = "predict.py:Predictor",
        train: str | None = None,
        mode: str = "predict",
        slots: int | None = None,
        python: str = sys.executable,
        env: dict[str, str] | None = None,
        files: dict[str, str] | None = None,
        group: bool = False,
        batch: dict[str, int] | None = None,
    ) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="tidegate-test-")
        root = Path(self.folder.name)
        self.model, self.scratch, cwd = root / "model", root / "scratch", root / "cwd"
        for folder in (self.model, self.scratch, cwd):
            folder.mkdir()
        (self.model / "predict.py").write_text(textwrap.dedent(source))
        for name, text in (files or {}).items():
            (self.model / name).parent.mkdir(parents=True, exist_ok=True)
            (self.model / name).write_text(textwrap.dedent(text))
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(root / "s"))
        self.listener.listen(128)
        self.stderr_path = root / "stderr"
        with open(self.stderr_path, "wb") as stderr:
            self.process = subprocess.Popen(
                [python, "-u", "-c", START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=cwd,
                env={**os.environ, "PYTHONPATH": str(PACKAGE), **(env or {})},
                bufsize=0,
                start_new_session=group,
            )
        assert self.process.stdin and self.process.stdout
        self.control = Channel(self.process.stdout.fileno(), self.process.stdin.fileno())
        self.slots: list[Channel] = []
        self.sockets: list[socket.socket] = []
        self.setup_logs: list[str] = []
        self.ready: dict[str, Any] = {}
        self.n = 0
        self.sent: dict[int, int] = {}
        self.numbers: dict[str, int] = {}
        self.control.send(
            {
                "init": {
                    "model_dir": str(self.model),
                    "predictor_ref": ref,
                    "train_ref": train,
                    "mode": mode,
                    "num_slots": slots,
                    "socket": str(root / "s"),
                    "batch": batch or {},
                }
            }
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for sock in self.sockets:
            sock.close()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()
        self.listener.close()
        self.folder.cleanup()

    def until_ready(self, limit: float = LIMIT) -> Child:
        """Waits for `ready` and accepts the slots; raises with the child's reason if it fails."""
        while not self.ready:
            message = self.control.recv(limit)
            if "log" in message:
                self.setup_logs.append(message["log"]["data"])
            elif "fatal" in message:
                raise AssertionError(message["fatal"])
            elif "ready" in message:
                self.ready = message["ready"]
        for slot in self.ready["slots"]:
            assert self.control.recv() == {"idle": {"slot": slot}}
            sock, _ = self.listener.accept()
            self.sockets.append(sock)
            self.slots.append(Channel(sock.fileno(), sock.fileno()))
        return self

    def fatal(self) -> dict[str, Any]:
        """Waits until the child reports a fatal error and exits."""
        while True:
            message = self.control.recv()
            if "fatal" in message:
                assert self.process.wait(LIMIT) == 1
                return message["fatal"]
            assert "ready" not in message, "the child became ready"
            if "log" in message:
                self.setup_logs.append(message["log"]["data"])

    def start(
        self,
        slot: int = 0,
        /,
        *,
        kind: str = "prediction",
        extra: dict[str, Any] | None = None,
        **input_: Any,
    ) -> str:
        """Starts a job and returns its id."""
        predict = self._request(slot, kind, input_)
        self.slots[slot].send({"predict": {**predict, **(extra or {})}})
        return predict["id"]

    def start_batch(self, *inputs: dict[str, Any]) -> list[str]:
        """Starts a batch and returns the ids of its items."""
        items = [self._request(0, "prediction", input_) for input_ in inputs]
        self.slots[0].send({"batch": {"items": items}})
        return [item["id"] for item in items]

    def _request(self, slot: int, kind: str, input_: dict[str, Any]) -> dict[str, Any]:
        self.n += 1
        job = f"job-{self.n}"
        self.sent[slot] = self.sent.get(slot, 0) + 1
        self.numbers[job] = self.sent[slot]
        return {
            "id": job,
            "kind": kind,
            "input": input_,
            "input_file": None,
            "output_dir": str(self.scratch / job),
        }

    def finish_batch(self, size: int, limit: float = LIMIT) -> tuple[list[Outcome], list[int]]:
        """Reads until the last message of each item; returns the items and the sizes of the calls."""
        outcomes = [Outcome() for _ in range(size)]
        calls = []
        while not all(outcome.kind for outcome in outcomes):
            message = self.slots[0].recv(limit)
            assert isinstance(message, dict)
            if "batch_call" in message:
                calls.append(len(message["batch_call"]["items"]))
                continue
            outcome, inner = outcomes[message["item"]["n"]], message["item"]["message"]
            ((kind, body),) = inner.items()
            outcome.messages.append(inner)
            assert not outcome.kind, f"a message after the end: {message}"
            if kind in ("done", "failed", "cancelled"):
                outcome.kind, outcome.body = kind, body
        return outcomes, calls

    def run_batch(self, *inputs: dict[str, Any]) -> tuple[list[Outcome], list[int]]:
        """Runs one batch to its end."""
        jobs = self.start_batch(*inputs)
        outcomes, calls = self.finish_batch(len(inputs))
        assert [outcome.body["id"] for outcome in outcomes] == jobs
        return outcomes, calls

    def finish(self, slot: int = 0, limit: float = LIMIT) -> Outcome:
        """Reads until the job's last message."""
        outcome = Outcome()
        while True:
            message = self.slots[slot].recv(limit)
            assert isinstance(message, dict)
            ((kind, body),) = message.items()
            outcome.messages.append(message)
            if kind in ("done", "failed", "cancelled"):
                outcome.kind, outcome.body = kind, body
                return outcome

    def run(self, slot: int = 0, /, **input_: Any) -> Outcome:
        """Runs one job to its end."""
        job = self.start(slot, **input_)
        outcome = self.finish(slot)
        assert outcome.body["id"] == job
        return outcome

    def cancel(self, job: str, slot: int = 0) -> None:
        self.control.send({"cancel": {"slot": slot, "nth": self.numbers[job]}})

    def control_until(self, kind: str, limit: float = LIMIT) -> Any:
        """Reads the control channel until a message of this kind."""
        while True:
            message = self.control.recv(limit)
            if message == kind:
                return message
            if isinstance(message, dict) and kind in message:
                return message[kind]

    def operator_log(self, text: str) -> None:
        """Waits for a line in the server's log."""
        while text not in self.control_until("log")["data"]:
            pass


class Outcome:
    """All messages of a job."""

    def __init__(self) -> None:
        self.kind = ""
        self.body: dict[str, Any] = {}
        self.messages: list[dict[str, Any]] = []

    @property
    def output(self) -> Any:
        assert self.kind == "done", self.body
        return self.body["output"]

    @property
    def error(self) -> str:
        assert self.kind == "failed", (self.kind, self.body)
        return self.body["error"]

    @property
    def logs(self) -> str:
        return "".join(m["log"]["data"] for m in self.messages if "log" in m)

    @property
    def items(self) -> list[Any]:
        return [m["output"]["output"] for m in self.messages if "output" in m]

    @property
    def files(self) -> list[dict[str, Any]]:
        return [m["file_output"] for m in self.messages if "file_output" in m]

    @property
    def metrics(self) -> list[tuple[str, Any, str]]:
        found = [m["metric"] for m in self.messages if "metric" in m]
        return [(m["name"], m["value"], m["mode"]) for m in found]
