"""Requests of the page of the web UI."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import requests
from sse import EventStream

#: The header of a browser that opens a page.
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def auth(token: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}


def get(url: str, path: str, token: str | None = None, **headers: str) -> requests.Response:
    """A request on a connection of its own, without following redirects."""
    return requests.get(url + path, headers=auth(token) | headers, timeout=15, allow_redirects=False)


def read(url: str, path: str, token: str | None = None) -> Any:
    """The document at a path of the page's data."""
    reply = get(url, f"/ui/api/{path}", token)
    assert reply.status_code == 200, reply.text
    return reply.json()


def events(url: str, path: str, token: str | None = None, last_id: str | None = None) -> EventStream:
    """Open a stream of the page's data."""
    headers = auth(token) | ({"Last-Event-ID": last_id} if last_id else {})
    response = requests.get(f"{url}/ui/api/{path}", headers=headers, stream=True, timeout=30)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream"
    return EventStream(response)


def run(url: str, model: str, input: dict[str, Any], token: str | None = None) -> str:
    """Run a model as the page does; returns the id of the job."""
    path = read(url, f"models/{model}", token)["run"]["path"]
    headers = auth(token) | {"Prefer": "respond-async"}
    reply = requests.post(f"{url}/{path}", json={"input": input}, headers=headers, timeout=15)
    assert reply.status_code in (200, 201, 202), reply.text
    return reply.json()["id"]


def write_tokens(file: Path, **tokens: str) -> None:
    """Write a file for `--tokens-file`: the token of each account."""
    lines = (f"sha256:{hashlib.sha256(token.encode()).hexdigest()} {name}" for name, token in tokens.items())
    file.write_text("\n".join(lines))
    file.chmod(0o600)
