"""The proxies that `bench/router` measures: how each is configured for one backend on this machine."""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidebench.client import Connection, Unanswered, request
from tidebench.processes import Command, Tree
from tidebench.server import free_port

PATH = "/v1/chat/completions"
START_LIMIT_S = 60.0


def most_requests() -> int:
    """How many a proxy can forward at once: each needs a file for the client and one for the backend."""
    return (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 512) // 2


class CannotMeasure(Exception):
    """The proxy is not installed or does not work; the message says why."""


@dataclass(frozen=True)
class Place:
    """Where a proxy listens, where it sends requests, and where its files are."""

    port: int
    backend: int
    folder: Path


@dataclass
class Proxy:
    """A running proxy, or the backend itself without one (`tree` is None)."""

    name: str
    port: int
    tree: Tree | None

    def stop(self) -> None:
        if self.tree:
            self.tree.stop()

    def cpu_us(self) -> int:
        return self.tree.cpu_us() if self.tree else 0


def nginx_argv(place: Place) -> list[str]:
    upstream = f"upstream backend {{ server 127.0.0.1:{place.backend}; keepalive 1024; }}"
    forward = "proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection '';"
    location = f"location / {{ {forward} proxy_buffering off; proxy_read_timeout 1h; }}"
    return nginx(place, f"{upstream} server {{ listen 127.0.0.1:{place.port}; {location} }}")


def nginx(place: Place, http: str) -> list[str]:
    """Also used for the backend. It stays in the foreground, as one tree of processes."""
    folder = place.folder / f"nginx-{place.port}"
    folder.mkdir()
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; worker_processes auto; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{ worker_connections {2 * most_requests()}; }}\n"
        f"http {{ access_log off; {temporary} keepalive_requests 100000000;\n{http} }}\n"
    )
    return [program("nginx"), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"]


def haproxy_argv(place: Place) -> list[str]:
    config = place.folder / f"haproxy-{place.port}.cfg"
    config.write_text(
        f"global\n  maxconn {most_requests()}\n"
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n"
        f"frontend clients\n  bind 127.0.0.1:{place.port}\n  default_backend backend\n"
        f"backend backend\n  http-reuse always\n  server one 127.0.0.1:{place.backend}\n"
    )
    return [program("haproxy"), "-db", "-f", str(config)]


def envoy_argv(place: Place) -> list[str]:
    """YAML is a superset of JSON."""

    def address(port: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    types = "type.googleapis.com/envoy.extensions.filters"
    router = {"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "backend", "timeout": "0s"}}
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "http_filters": [router],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    listener = {
        "name": "clients",
        "address": address(place.port),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    limits = ("max_connections", "max_pending_requests", "max_requests")
    cluster = {
        "name": "backend",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [dict.fromkeys(limits, most_requests())]},
        "load_assignment": {
            "cluster_name": "backend",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(place.backend)}}]}],
        },
    }
    config = place.folder / f"envoy-{place.port}.yaml"
    config.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    flags = ["--concurrency", str(os.cpu_count()), "--use-dynamic-base-id", "-l", "error"]
    return [program("envoy"), "-c", str(config), *flags]


def python_router_argv(*command: str) -> Callable[[Place], list[str]]:
    """vllm-router, sglang-router and smg have common ancestors, and their flags."""

    def argv(place: Place) -> list[str]:
        where = ["--host", "127.0.0.1", "--port", str(place.port)]
        where += ["--worker-urls", f"http://127.0.0.1:{place.backend}"]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
        limits = ["--max-concurrent-requests", str(most_requests()), "--log-level", "error"]
        return [program(command[0]), *command[1:], *where, "--policy", "round_robin", *metrics, *limits]

    return argv


def tidegate_argv(binary: Path) -> Callable[[Place], list[str]]:
    def argv(place: Place) -> list[str]:
        fleet = place.folder / f"fleet-{place.port}.toml"
        fleet.write_text(
            '[[model]]\nname = "bench"\ntimeout = { total = "2h", idle = "1h" }\n'
            f'[[model.endpoint]]\nurl = "http://127.0.0.1:{place.backend}"\npermits = {most_requests()}\n'
        )
        return [str(binary), "--config", str(fleet), "router", "--port", str(place.port)]

    return argv


def proxies(tidegate: Path) -> dict[str, Callable[[Place], list[str]]]:
    """The command of each proxy, by its name."""
    return {
        "tidegate": tidegate_argv(tidegate),
        "nginx": nginx_argv,
        "haproxy": haproxy_argv,
        "envoy": envoy_argv,
        "vllm-router": python_router_argv("vllm-router"),
        "sglang-router": python_router_argv("sglang-router", "launch"),
        "smg": python_router_argv("smg", "launch"),
    }


def program(name: str) -> str:
    found = shutil.which(name)
    if not found:
        raise CannotMeasure("it is not installed")
    return found


def start(name: str, argv: list[str], port: int, folder: Path, body: bytes) -> Proxy:
    """Starts a proxy and waits until it answers `body` with 200."""
    log = folder / f"{name}-{port}.log"
    tree = Tree(Command(argv, folder, os.environ), log)
    until = time.monotonic() + START_LIMIT_S
    try:
        while not answers(port, body):
            if not tree.is_alive() or time.monotonic() > until:
                end = log.read_text(errors="replace").strip()[-500:]
                raise CannotMeasure(f"it does not answer: {end}")
            time.sleep(0.05)
    except BaseException:
        tree.stop()
        raise
    return Proxy(name, port, tree)


def answers(port: int, body: bytes) -> bool:
    try:
        with Connection(port) as connection:
            return connection.post(request(PATH, body)).status == 200
    except (OSError, Unanswered):
        return False
