"""The metrics of API processes and directors."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from backends import Postgres
from cluster import Cluster, new_cluster_with
from environment import ROOT, free_port
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

PAGE = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
MODEL = {"model": "local/echo"}


def families(url: str) -> dict[str, list]:
    text = requests.get(f"{url}/metrics", timeout=20).text
    found = {}
    for family in text_string_to_metric_families(text):
        name = family.name + ("_total" if family.type == "counter" else "")
        found[name] = family.samples
    return found


def value(url: str, name: str, **labels: str) -> float | None:
    """The sum of the samples with these labels; `None` if there are none."""
    samples = [sample for sample in families(url)[name] if labels.items() <= sample.labels.items()]
    return sum(sample.value for sample in samples) if samples else None


def becomes(url: str, expected: float, name: str, **labels: str) -> None:
    wait_until(lambda: value(url, name, **labels) == expected, f"{name} {labels} to be {expected}", 30)


def documented(section: str) -> set[str]:
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", text, re.M))


def create(url: str, **input: object) -> str:
    reply = requests.post(f"{url}/v1/models/local/echo/predictions", json={"input": input}, timeout=20)
    assert reply.status_code == 201, reply.text
    return reply.json()["id"]


@pytest.fixture
def urls(new_cluster: Cluster) -> Iterator[tuple[str, str]]:
    """The URLs of an API process and of a director."""
    port = free_port()
    api = new_cluster.start_api()
    new_cluster.start_director("echo", "--port", str(port), name="one")
    new_cluster.wait_for_model("local/echo")
    yield api.url, f"http://127.0.0.1:{port}"


def test_waiting_and_running_jobs_are_counted(urls: tuple[str, str], tmp_path: Path):
    api, director = urls
    becomes(api, 0, "tidegate_queue_waiting", **MODEL)
    gate = tmp_path / "gate"
    create(api, gate=str(gate))
    becomes(api, 1, "tidegate_leases")
    for _ in range(3):
        create(api)
    becomes(api, 3, "tidegate_queue_waiting", **MODEL)
    assert value(api, "tidegate_queue_taken", **MODEL) == 1
    assert value(api, "tidegate_queue_oldest_wait_seconds", **MODEL) > 0
    assert value(api, "tidegate_directors") == 1
    assert value(api, "tidegate_cluster_up", part="queue") == 1
    assert value(api, "tidegate_cluster_up", part="store") == 1
    assert value(api, "tidegate_webhook_oldest_due_seconds") == 0
    assert value(api, "tidegate_dead_letters") == 0
    assert value(director, "tidegate_director_connected") == 1
    assert value(director, "tidegate_director_isolated") == 0
    assert value(director, "tidegate_director_leases") == 1
    assert value(director, "tidegate_director_messages") == 1
    assert value(director, "tidegate_slots", **MODEL) == 1

    gate.touch()
    becomes(director, 4, "tidegate_director_runs_total", result="committed")
    becomes(api, 0, "tidegate_queue_waiting", **MODEL)
    becomes(api, 0, "tidegate_queue_oldest_wait_seconds", **MODEL)
    assert value(api, "tidegate_lease_requests_total", result="granted") == 4
    assert value(director, "tidegate_director_leases_total", result="granted") == 4
    assert value(director, "tidegate_director_messages_taken_total") >= 4
    assert value(director, "tidegate_director_heartbeats_total", result="replied") >= 1
    assert value(director, "tidegate_director_events_total") > 0
    for url, section in [(api, "API processes of a cluster"), (director, "Directors")]:
        ours = {name for name in families(url) if name in documented("Directors") | documented(section)}
        assert ours == documented(section) and len(ours) > 10


def test_lost_directors_and_reruns_are_counted(new_cluster: Cluster, urls: tuple[str, str], tmp_path: Path):
    api, _ = urls
    gate = tmp_path / "gate"
    create(api, gate=str(gate))
    becomes(api, 1, "tidegate_leases")
    new_cluster.directors[0].process.send_signal(signal.SIGKILL)
    becomes(api, 1, "tidegate_leases_lost_total")
    becomes(api, 0, "tidegate_directors")
    new_cluster.start_director("echo", name="two")
    becomes(api, 1, "tidegate_jobs_rerun_total")
    gate.touch()
    becomes(api, 0, "tidegate_leases")
    assert value(api, "tidegate_jobs_lost_total") == 0


def test_gauges_are_absent_while_redis_is_down(new_cluster: Cluster, urls: tuple[str, str]):
    api, _ = urls
    becomes(api, 0, "tidegate_queue_waiting", **MODEL)
    new_cluster.redis.stop()
    becomes(api, 0, "tidegate_cluster_up", part="queue")
    assert value(api, "tidegate_queue_waiting", **MODEL) is None
    assert value(api, "tidegate_cluster_up", part="store") == 1


def test_the_metrics_arrive_while_postgresql_does_not_reply(tmp_path: Path):
    with Postgres() as postgres, new_cluster_with(postgres, tmp_path) as cluster:
        api = cluster.start_api()
        becomes(api.url, 1, "tidegate_cluster_up", part="store")
        with postgres.suspended():
            becomes(api.url, 0, "tidegate_cluster_up", part="store")
            # What the store said last is shown for a few seconds.
            end = time.monotonic() + 15
            while time.monotonic() < end:
                began = time.monotonic()
                families(api.url)
                assert time.monotonic() - began < 10, api.log()
        becomes(api.url, 1, "tidegate_cluster_up", part="queue")


def test_a_director_is_ready_when_its_model_has_been_loaded(new_cluster: Cluster, tmp_path: Path):
    port, gate = free_port(), tmp_path / "gate"
    new_cluster.start_api()
    director = new_cluster.start_director("setup_slow", "--port", str(port), env={"SETUP_GATE": str(gate)})

    def health() -> dict:
        try:
            return requests.get(f"http://127.0.0.1:{port}/health-check", timeout=20).json()
        except requests.ConnectionError:
            return {}

    wait_until(lambda: health().get("is_connected"), f"the connection: {director.log()}", 30)
    loading = health()
    assert (loading["is_ready"], loading["models"][0]["status"]) == (False, "STARTING")
    gate.touch()
    wait_until(lambda: health()["is_ready"], f"the model to be loaded: {director.log()}", 30)


def test_a_director_whose_model_cannot_be_loaded_is_not_ready(new_cluster: Cluster):
    port = free_port()
    new_cluster.start_api()
    new_cluster.start_director("setup_fails", "--port", str(port))

    def status() -> str | None:
        try:
            health = requests.get(f"http://127.0.0.1:{port}/health-check", timeout=20).json()
        except requests.ConnectionError:
            return None
        assert not health["is_ready"], health
        return health["models"][0]["status"] if health["is_connected"] else None

    wait_until(lambda: status() == "SETUP_FAILED", new_cluster.logs(), 30)
