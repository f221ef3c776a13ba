"""Worker processes under test: `tidegate worker`, and Runpod's own worker."""

from __future__ import annotations

import signal
import subprocess
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from environment import clean_env, runpod_python, shim_python, tidegate_bin
from job_server import JobServer
from processes import kill_group


@dataclass
class Worker:
    """A worker process and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def read_log(self) -> str:
        return self.log.read_text(errors="replace")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait(10)

    def wait_exit(self, seconds: float = 30.0) -> int:
        return self.process.wait(seconds)

    def close(self) -> None:
        # The heartbeat process of Runpod's worker outlives it.
        kill_group(self.process.pid)
        self.process.wait(10)


class WorkerLauncher:
    """Starts workers for one test and kills them at its end."""

    def __init__(self, job_server: JobServer, folder: Path) -> None:
        self.job_server = job_server
        self.folder = folder
        self._workers: list[Worker] = []

    def script(self, source: str, name: str = "handler.py") -> Path:
        """Write a handler script."""
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def start(self, target: Path, *flags: str, env: dict[str, str] | None = None) -> Worker:
        """Start `tidegate worker`."""
        command = [str(tidegate_bin()), "worker", str(target)]
        command += ["--data-dir", str(self.folder / "data"), *flags]
        return self._run(command, {"TIDEGATE_PYTHON": str(shim_python()), **(env or {})})

    def start_sdk_worker(self, script: Path, env: dict[str, str] | None = None) -> Worker:
        """Start the worker of the real `runpod` package."""
        return self._run([str(runpod_python()), str(script)], env or {})

    def _run(self, command: list[str], env: dict[str, str]) -> Worker:
        log = self.folder / f"worker-{len(self._workers)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                env={**clean_env(), **self.job_server.environment(), **env},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        worker = Worker(process, log)
        self._workers.append(worker)
        return worker

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


def seconds_since(began: float) -> float:
    return time.monotonic() - began
