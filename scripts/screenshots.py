"""Make the screenshots of the web UI in docs/images: `make screenshots`.

Serves the example models, sends requests to them, so that the dashboard has something to show, and lets
`scripts/screenshots.mjs` take the pictures with Chromium. `LOAD_SECONDS=…` changes how long it sends.
"""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PYTHON = ROOT / ".venv" / "bin" / "python"

#: The longest wait for the models and for an answer, and how long requests are sent, in seconds.
TIMEOUT = 60
LOAD_SECONDS = float(os.environ.get("LOAD_SECONDS", "90"))

#: Models that need packages which the tests do not install.
UNSERVED = {"batching-torch"}

#: A text file, and one that the model of `examples/files` cannot read.
TEXT = "data:text/plain;base64," + base64.b64encode(b"the tide comes and the tide goes").decode()
NO_TEXT = "data:text/plain;base64," + base64.b64encode(b"\xff\xfe\xff").decode()


def main() -> int:
    """Serve the examples, send requests, take the screenshots."""
    with tempfile.TemporaryDirectory() as scratch:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        server = start(port, scratch)
        try:
            wait_until_ready(url)
            send_load(url)
            job = predict(url, "streaming", {"prompt": "The tide", "words": 40, "delay": 0.02})["id"]
            failed = take(url, job, "playground", "job")
            send_slow_jobs(url)
            with small_load(url):
                failed = take(url, job, "overview") or failed
            return take(url, job, "jobs") or failed or shrink()
        finally:
            server.terminate()
            server.wait(TIMEOUT)


def free_port() -> int:
    """Find a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(port: int, scratch: str) -> subprocess.Popen[bytes]:
    """Serve the examples."""
    examples = Path(scratch, "examples")
    examples.mkdir()
    for model in (ROOT / "examples").iterdir():
        if model.is_dir() and model.name not in UNSERVED:
            (examples / model.name).symlink_to(model)
    program = os.environ.get("TIDEGATE_BIN", str(ROOT / "target" / "debug" / "tidegate"))
    command = [program, "serve", str(examples), "--port", str(port), "--owner", "local"]
    command += ["--data-dir", f"{scratch}/data", "--drain-timeout", "1s", "--python", str(PYTHON)]
    with Path(scratch, "server.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)  # noqa: S603


def wait_until_ready(url: str) -> None:
    """Wait until every model is ready."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            models = call(f"{url}/admin/models")["models"]
            if models and all(model["health"] == "READY" for model in models):
                return
        except urllib.error.URLError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError("the examples are not ready")
        time.sleep(0.2)


def send_load(url: str) -> None:
    """Send requests to several models, most of which succeed."""
    end = time.monotonic() + LOAD_SECONDS
    threads = [threading.Thread(target=client, args=(url, number, end)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def small_load(url: str) -> Iterator[None]:
    """Send requests while the overview is shown, to a model whose slots are free."""
    stopped = threading.Event()

    def send() -> None:
        while not stopped.wait(0.1):
            predict(url, "hello", {"name": "Ada"})

    client = threading.Thread(target=send)
    client.start()
    try:
        yield
    finally:
        stopped.set()
        client.join()


def send_slow_jobs(url: str) -> None:
    """Leave some jobs that run and wait while pictures are taken, after one that fails."""
    predict(url, "files", {"text": NO_TEXT})
    for _ in range(3):
        predict(url, "streaming", {"prompt": "The tide", "words": 3000, "delay": 0.05}, wait=False)
    for _ in range(2):
        predict(url, "async-concurrent", {"question": "How long?", "seconds": 60}, wait=False)


def client(url: str, number: int, end: float) -> None:
    """Send one request after the other until `end`; the pauses make the rate rise and fall."""
    dice = random.Random(number)  # noqa: S311 - not for secrets
    requests = [
        ("hello", {"name": "Ada"}),
        ("hello", {"name": "Grace"}),
        ("streaming", {"prompt": "The tide", "words": 8, "delay": 0.02}),
        ("files", {"text": TEXT}),
        ("async-concurrent", {"question": "How long?", "seconds": 0.5}),
    ]
    while (left := end - time.monotonic()) > 0:
        broken = dice.random() < 0.02
        model, body = ("files", {"text": NO_TEXT}) if broken else dice.choice(requests)
        predict(url, model, body)
        time.sleep(dice.uniform(0.05, 0.3) * (1 + (left / 15) % 2))


def predict(url: str, model: str, body: dict[str, object], *, wait: bool = True) -> dict[str, str]:
    """Create a prediction with Replicate's API."""
    prefer = "wait" if wait else "respond-async"
    return call(f"{url}/v1/models/local/{model}/predictions", {"input": body}, {"Prefer": prefer})


def call(url: str, body: object = None, headers: dict[str, str] | None = None) -> dict[str, object]:
    """Send a request; the answer is JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} | (headers or {}))  # noqa: S310
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
        return json.load(answer)


def take(url: str, job: str, *pages: str) -> int:
    """Take the pictures of some pages."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    command = ["node", str(ROOT / "scripts" / "screenshots.mjs"), url, job, str(IMAGES), *pages]
    return subprocess.run(command, check=False).returncode  # noqa: S603


def shrink() -> int:
    """Make the files small."""
    pictures = sorted(str(picture) for picture in IMAGES.glob("ui-*.png"))
    command = ["pngquant", "--force", "--skip-if-larger", "--ext", ".png", "--quality", "70-95", "--strip"]
    done = subprocess.run([*command, *pictures], check=False).returncode  # noqa: S603
    # 98: a file would have become larger, and stays as it is.
    return 0 if done == 98 else done


if __name__ == "__main__":
    sys.exit(main())
