"""Workers under test: ours, and the real one in whose place it stands."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from job_server import JobServer
from servers import ROOT, clean_env, shim_python, tidegate_bin


def runpod_python() -> Path:
    """A Python with the real `runpod` package."""
    return (ROOT / os.environ.get("TIDEGATE_TEST_RUNPOD_PYTHON", ".venv-runpod/bin/python")).absolute()


@dataclass
class Worker:
    """A worker process and what it says."""

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as the system would that has no memory left."""
        self.process.kill()
        self.process.wait(10)

    def ended(self, seconds: float = 30.0) -> int:
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


class Crew:
    """Starts workers for one test, and ends them with it."""

    def __init__(self, platform: JobServer, folder: Path) -> None:
        self.platform = platform
        self.folder = folder
        self._workers: list[Worker] = []

    def script(self, source: str, name: str = "handler.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def start(self, target: Path, *flags: str, env: dict[str, str] | None = None) -> Worker:
        """Start ours."""
        command = [
            str(tidegate_bin()),
            "worker",
            str(target),
            "--data-dir",
            str(self.folder / "data"),
            *flags,
        ]
        return self._run(command, {"TIDEGATE_PYTHON": str(shim_python()), **(env or {})})

    def start_real(self, script: Path, env: dict[str, str] | None = None) -> Worker:
        """Start the real one."""
        return self._run([str(runpod_python()), str(script)], env or {})

    def _run(self, command: list[str], env: dict[str, str]) -> Worker:
        log = self.folder / f"worker-{len(self._workers)}.log"
        whole = {**clean_env(), **self.platform.environment(), **env}
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                env=whole,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        worker = Worker(process, log)
        self._workers.append(worker)
        return worker

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


def seconds_since(began: float) -> float:
    return time.monotonic() - began
