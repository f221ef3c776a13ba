"""A running `tidegate router` and requests to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from environment import free_port, tidegate_bin, tidegate_env
from fleet_file import fleet_toml
from http_client import BackgroundRequest, Reply
from launch import launch
from raw_http import RawConnection, json_request
from server_process import Server
from waiting import wait_until


class Router:
    """A router process."""

    def __init__(self, server: Server, file: Path | None) -> None:
        self.server, self.file = server, file

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    def request(self, method: str, path: str, token: str | None = None, **options: Any) -> Reply:
        """A request on a connection of its own, so that any thread may send it."""
        headers = {**({"authorization": f"Bearer {token}"} if token else {}), **options.pop("headers", {})}
        options.setdefault("timeout", 15)
        response = requests.request(method, self.url + path, headers=headers, **options)
        return Reply(response.status_code, response.headers, response.content)

    def chat(self, text: str = "hello", model: str = "m", **options: Any) -> Reply:
        extra = options.pop("body", {})
        return self.request("POST", "/v1/chat/completions", json=chat_body(text, model, **extra), **options)

    def chat_in_background(self, text: str = "hello", model: str = "m", **options: Any) -> BackgroundRequest:
        return BackgroundRequest(lambda: self.chat(text, model, **options))

    def open_chat(
        self, text: str = "hello", model: str = "m", token: str | None = None, **body: Any
    ) -> RawConnection:
        """Send a chat over a plain socket, which the test reads or closes."""
        connection = RawConnection(self.server)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        request = json_request(chat_body(text, model, **body), target="/v1/chat/completions", **headers)
        return connection.send(request)

    def state(self, token: str | None = None) -> dict[str, Any]:
        """The document of `GET /admin/router`."""
        reply = self.request("GET", "/admin/router", token)
        assert reply.status == 200, str(reply)
        return reply.json

    def model_state(self, name: str = "m", token: str | None = None) -> dict[str, Any]:
        return next(model for model in self.state(token)["models"] if model["name"] == name)

    def endpoint_state(self, url: str, token: str | None = None) -> dict[str, Any]:
        """An endpoint of any model."""
        models = self.state(token)["models"]
        return next(entry for model in models for entry in model["endpoints"] if entry["url"] == url)

    def wait_queue_size(self, size: int, name: str = "m", token: str | None = None) -> None:
        wait_until(
            lambda: self.model_state(name, token)["queue_size"] == size,
            f"a queue of {size} requests for {name}",
        )

    def wait_queue_size_for(self, seconds: float) -> None:
        """Wait until a request has been in the queue for this long."""
        self.wait_queue_size(1)
        seen = time.monotonic()
        wait_until(lambda: time.monotonic() - seen > seconds, f"{seconds} s in the queue")

    def wait_used_permits(self, used: int, name: str = "m", token: str | None = None) -> None:
        wait_until(lambda: self.model_state(name, token)["used_permits"] == used, f"{used} permits in use")

    def write_config(self, text: str) -> None:
        """Replace the file; the router finds it by itself or when it is asked to."""
        assert self.file is not None
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)

    def reload(self, text: str, token: str | None = None) -> Reply:
        self.write_config(text)
        return self.request("POST", "/admin/router/reload", token)

    def metric(self, name: str, token: str | None = None, **labels: str) -> float:
        """The sum of the samples of a metric that have these labels."""
        text = self.request("GET", "/metrics", token).body.decode()
        return metric_sum(text, name, labels)


def chat_body(text: str, model: str = "m", **extra: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "model": model, **extra}


def metric_sum(text: str, name: str, labels: dict[str, str]) -> float:
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    samples = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(line.rpartition(" ")[2]) for line in samples if all(label in line for label in wanted))


def start_router(
    directory: Path,
    *models: dict[str, Any],
    config: str | None = None,
    backends: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    port: int | None = None,
    env: dict[str, str | None] | None = None,
    **settings: Any,
) -> Router:
    """Start a router with `--backend` flags, or with a file that has these models and settings."""
    directory.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    command, file = [str(tidegate_bin())], None
    if not backends:
        file = directory / "fleet.toml"
        file.write_text(config if config is not None else fleet_toml(*models, **settings))
        command += ["--config", str(file)]
    command += ["router", *(part for url in backends for part in ("--backend", url))]
    command += ["--port", str(port), *(flags or ("--drain-grace", "0s", "--drain-timeout", "1s"))]
    work = directory / "work"
    work.mkdir(exist_ok=True)
    server = launch("router", work, port, command, tidegate_env(**(env or {})), ("READY",))
    return Router(server, file)


def in_parallel(calls: list[Callable[[], Reply]]) -> list[Reply]:
    """The replies of requests that run at the same time."""
    running = [BackgroundRequest(call) for call in calls]
    return [request.reply() for request in running]
