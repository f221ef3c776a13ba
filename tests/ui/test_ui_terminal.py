"""`tidegate ps` and `tidegate logs` show what the dashboard shows, of every kind of server."""

from __future__ import annotations

import json

from fleet_file import endpoint, model
from ui_commands import command
from waiting import wait_until


def test_a_router_has_models_and_backends_but_no_jobs(router, upstream):
    running = router(model("m", endpoint(upstream.url)))
    shown = wait_until(
        lambda: (ended := command(running.url, "ps")).stdout.count("m ") and ended, "the models of the router"
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    models, backends = shown.stdout.split("\n\n")
    assert models.splitlines()[1].split()[0] == "m"
    assert backends.splitlines()[1].split()[:2] == ["m", upstream.url]
    assert "jobs" not in json.loads(command(running.url, "ps", "--json").stdout)
    for target in ("some-job", "m"):
        refused = command(running.url, "logs", target)
        assert refused.returncode in (1, 64)
        assert "router" in refused.stderr and "--url" in refused.stderr


def test_an_endpoint_of_a_platform(platform):
    job = platform.run({"x": 1})
    shown = command(platform.url, "ps")
    tables = [[line.split() for line in table.splitlines()] for table in shown.stdout.split("\n\n")]
    assert tables[0][1][:5] == ["echo", "NO_WORKERS", "0/0", "1", "0"]
    assert [row[:3] for row in tables[-1]] == [["ID", "MODEL", "STATUS"], [job, "runpod/echo", "queued"]]
    assert command(platform.url, "logs", "echo").returncode == 0
