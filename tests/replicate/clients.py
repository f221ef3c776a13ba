"""Replicate's official Python and npm clients, configured for a server under test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from environment import ROOT
from replicate.client import Client
from server_process import Server

HERE = Path(__file__).parent
#: The folder with the npm client, made by `npm ci`.
NODE_MODULES = (
    ROOT / os.environ.get("TIDEGATE_TEST_NODE_MODULES", "tests/replicate/node_modules")
).absolute()


class NpmError(Exception):
    """An error that the npm client threw."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(answer["error"])
        self.status = answer["status"]


class Npm:
    """The npm client; each call is a process."""

    def __init__(self, server: Server, token: str = "none") -> None:
        self._command = ["node", str(HERE / "client.cjs"), server.url, token]

    def __call__(self, call: str, **arguments: Any) -> Any:
        done = subprocess.run(
            self._command,
            input=json.dumps({"call": call, **arguments}),
            env=os.environ | {"NODE_PATH": str(NODE_MODULES)},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        if "error" in answer:
            raise NpmError(answer)
        return answer["result"]


class ServedModel:
    """A model on a running server, with clients of an account."""

    def __init__(self, server: Server, model: str, token: str = "none") -> None:
        self.server = server
        self.model = f"local/{model}"
        self.owner, self.name = "local", model
        self.headers = {"Authorization": f"Bearer {token}"}
        self.python = Client(api_token=token, base_url=server.url, timeout=30)
        self.npm = Npm(server, token)

    @property
    def version(self) -> str:
        return self.get(f"/v1/models/{self.model}").json["latest_version"]["id"]

    @property
    def ref(self) -> Any:
        return f"{self.model}:{self.version}"

    def get(self, path: str, **options: Any) -> Any:
        return self.server.get(path, headers=self.headers, **options)

    def create(self, input: Any, headers: dict[str, str] | None = None, **body: Any) -> Any:
        """Create a prediction with a plain HTTP request."""
        path = f"/v1/models/{self.model}/predictions"
        return self.server.post(path, {"input": input, **body}, headers=self.headers | (headers or {}))

    def show(self, id: str) -> dict[str, Any]:
        reply = self.get(f"/v1/predictions/{id}")
        assert reply.status == 200, str(reply)
        return reply.json

    def kill(self) -> None:
        os.kill(self.server.process.pid, signal.SIGKILL)
        self.server.process.wait()


def forgeries(url: str, other: str) -> list[str]:
    """Manipulated copies of a signed URL of ann: another owner, expiry, signature or file."""
    expiry = parse_qs(urlsplit(url).query)["expiry"][0]
    id, other_id = (urlsplit(each).path.split("/")[3] for each in (url, other))
    forged = [
        url.split("?")[0],
        url.replace("owner=ann", "owner=bob"),
        url.replace(expiry, str(int(expiry) + 1)),
        url.replace(expiry, "1"),
        url.replace("signature=", "signature=AAAA"),
        url.replace(id, other_id),
    ]
    assert url not in forged
    return forged
