"""The dashboard in a real browser: overview, jobs, webhooks, configuration, API docs."""

from __future__ import annotations

from pathlib import Path

import pytest
from environment import copy_model, free_port
from fleet_file import endpoint, model

pytestmark = pytest.mark.timeout(120)

ALICE = "alice-0123456789abcdef"
ROOT = "root-00112233445566"
TOKENS = f"{ALICE}:alice,{ROOT}:ops:admin"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Two models that work, and one whose setup fails."""
    folder = tmp_path / "models"
    for owner, name in (("ann", "echo"), ("bob", "steps"), ("ann", "setup_fails")):
        (folder / owner).mkdir(parents=True, exist_ok=True)
        copy_model(name, folder / owner)
    return folder


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    data = str(tmp_path / "data")
    return {"TIDEGATE_API_TOKENS": TOKENS, "TIDEGATE_DATA_DIR": data, "TIDEGATE_MAX_BODY": "32MiB"}


@pytest.mark.parametrize("file", ["overview.test.mjs", "jobs.test.mjs", "dashboard.test.mjs"])
def test_pages(file, start_server, run_browser_tests, gate, models, variables):
    server = start_server(models, env=variables)
    run_browser_tests(file, url=server.url, admin=ROOT, user=ALICE, gate=str(gate))


def test_webhooks_are_replayed(start_server, run_browser_tests, receiver, variables):
    server, hook = start_server("echo", env=variables), receiver.path()
    # A port that nothing listens on.
    gone = f"http://127.0.0.1:{free_port()}/"
    run_browser_tests("deliveries.test.mjs", url=server.url, admin=ROOT, hook=receiver.url + hook, gone=gone)
    first, second = receiver.wait(hook, 2)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


def test_endpoints_of_a_platform(platform, run_browser_tests):
    run_browser_tests("platform_overview.test.mjs", url=platform.url)


def test_backends_of_a_router(router, upstream, run_browser_tests):
    running = router(model("m", endpoint(upstream.url)))
    run_browser_tests("router_overview.test.mjs", url=running.url, backend=upstream.url)
